"""Both stores, for the tests that hold every store to the same promises.

PostgreSQL's database is made once a worker and emptied before each test, past its guards: a
database for each would cost three times as much.
"""

import secrets
from collections.abc import Callable

import psycopg

from sessiond.clock import Clock
from sessiond.postgres.store import PostgresStore
from sessiond.store import Store
from tests.postgres import Cluster

OpenStore = Callable[[Clock], Store]
"""Opens a test's store, again and again: it is the same."""

_TABLES = (
    "SELECT table_name FROM information_schema.tables "
    "WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
)
_NUMBERED = (
    "SELECT table_name, column_name FROM information_schema.columns "
    "WHERE table_schema = current_schema() AND is_identity = 'YES'"
)
_END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class EmptyDatabase:
    """One database with sessiond's tables, and nothing in them when asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self.url = cluster.database(f"stores_{secrets.token_hex(6)}")
        PostgresStore(self.url).close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            tables = [name for (name,) in connection.execute(_TABLES) if name != "meta"]
            numbered = connection.execute(_NUMBERED).fetchall()
        self._empty = "".join(
            [
                "SET session_replication_role = replica;",
                *(f"DELETE FROM {table};" for table in tables),
                *(f"ALTER TABLE {table} ALTER {column} RESTART;" for table, column in numbered),
                "UPDATE meta SET value = 0 WHERE key = 'generation'",
            ]
        )

    def emptied(self) -> str:
        """Its URL, once nobody is connected to it and nothing is in it."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_END_OTHERS)
            connection.execute(self._empty.encode())
        return self.url
