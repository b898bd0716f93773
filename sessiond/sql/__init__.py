"""The store's tables, in plain SQL that serves SQLite and PostgreSQL alike."""
