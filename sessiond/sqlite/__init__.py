"""The session store on SQLite: one file, one process."""
