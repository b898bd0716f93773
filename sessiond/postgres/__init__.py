"""The session store on PostgreSQL: one database, several processes."""
