"""Which store is served: the one that a URL names, else the SQLite file in the state folder."""

from pathlib import Path

from carpal import extras
from carpal.errors import refuse
from carpal.status import Reason
from sessiond.store import Store
from sessiond.store_url import check


def open_store(url: str, state: Path) -> Store:
    """The store, open; EXTRA_MISSING when what it needs is not installed."""
    if url:
        check(url)
        try:
            from sessiond.postgres.store import PostgresStore
        except ImportError as error:  # psycopg, or the library that it needs
            if (error.name or "").startswith(("sessiond", "carpal")):
                raise
            raise refuse(
                Reason.EXTRA_MISSING,
                "a store on PostgreSQL needs the package 'psycopg'",
                action=extras.how("postgres"),
            ) from None
        return PostgresStore(url)
    from sessiond.clock import SystemClock
    from sessiond.sqlite.store import SqliteStore

    return SqliteStore(state / "sessiond" / "sessions.db", SystemClock())
