"""A connection to SQLite, as the SQL wants it; the store's errors instead of SQLite's."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import apsw

from sessiond.sql.connection import Row
from sessiond.store import StoreBroken, StoreFull

_BUSY_MS = 5_000
"""How long to wait for a tool that holds the file, such as a copy being taken."""


class SqliteConnection:
    """Implements `sql.connection.Connection`."""

    lock_rows = ""  # a write transaction has the whole file

    def __init__(self, path: str, *, flags: int | None = None) -> None:
        with sqlite_errors():
            if flags is None:
                self.raw = apsw.Connection(path, statementcachesize=200)
            else:
                self.raw = apsw.Connection(path, flags=flags, statementcachesize=200)
            self.raw.set_busy_timeout(_BUSY_MS)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """See `sql.connection.Connection`."""
        # Not `with sqlite_errors()`: this is the hot path, and that is slower.
        try:
            return self.raw.execute(_ours(statement), values).fetchall()
        except apsw.Error as error:
            raise store_error(error) from error

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Generator[Row]:
        """See `sql.connection.Connection`."""
        with sqlite_errors():
            cursor = self.raw.execute(_ours(statement), values)
            try:
                yield from cursor
            finally:
                cursor.close(force=True)

    def pipelined(self) -> AbstractContextManager[object]:
        """See `sql.connection.Connection`."""
        return nullcontext()

    def begin(self) -> None:
        """See `sql.connection.Connection`."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """See `sql.connection.Connection`."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """See `sql.connection.Connection`."""
        if self.raw.in_transaction:  # a full disk may have undone it already
            self.execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See `sql.connection.Connection`."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self.execute("COMMIT")

    def close(self) -> None:
        """See `sql.connection.Connection`."""
        self.raw.close()


@lru_cache(maxsize=500)
def _ours(statement: str) -> str:
    """SQLite numbers `?1` as written, but `$1` by where it first stands."""
    return statement.replace("$", "?")


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Turn SQLite's errors into the store's."""
    try:
        yield
    except apsw.Error as error:
        raise store_error(error) from error


def store_error(error: apsw.Error) -> StoreFull | StoreBroken:
    """What an error of SQLite means for the store."""
    if isinstance(error, apsw.FullError):
        return StoreFull(str(error))
    return StoreBroken(f"the store cannot be read or written: {error}")
