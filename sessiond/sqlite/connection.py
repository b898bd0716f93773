"""A connection to SQLite, as the SQL wants it; the store's errors instead of SQLite's.

Every page of the file ends in a checksum that SQLite's `cksumvfs` writes and checks, so a
damaged page is an error when it is read, be it of a table or of an index.
"""

import errno
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from typing import Any

import apsw
import apsw.sqlite_extra

from carpal.errors import refuse
from carpal.status import Reason
from sessiond.sql.connection import Row
from sessiond.store import StoreBroken, StoreCorrupt, StoreFull

BUSY_MS = 5_000
"""How long to wait for a tool that holds the file, such as a copy being taken."""
RESERVED = 8
"""Bytes at the end of every page, which hold its checksum."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_ROOM_TO_WRITE = frozenset(
    {apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_TRUNCATE, apsw.SQLITE_CANTOPEN}
)
"""What fails for want of room before anything counts as written. A failed sync is not here:
what it left on disk nobody knows."""
_DAMAGED = frozenset({apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS})


class SqliteConnection:
    """Implements `sql.connection.Connection`."""

    lock_rows = ""  # a write transaction has the whole file

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        """Open a file that exists."""
        self.path = path
        self.raw = open_raw(path, read_only=read_only)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """See `sql.connection.Connection`."""
        # Not `with sqlite_errors()`: this is the hot path, and that is slower.
        try:
            return self.raw.execute(_ours(statement), values).fetchall()
        except apsw.Error as error:
            raise store_error(error, self.raw) from error

    def execute_all(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Row]]:
        """See `sql.connection.Connection`."""
        return [self.execute(statement, values) for statement, values in queries]

    def stream(
        self, statement: str, values: Sequence[Any] = (), most: int | None = None
    ) -> Generator[Row]:
        """See `sql.connection.Connection`."""
        with sqlite_errors(self.raw):
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
            if self.raw.in_transaction:  # an error may have ended it
                self.execute("COMMIT")

    def close(self) -> None:
        """See `sql.connection.Connection`."""
        self.raw.close()


@lru_cache(maxsize=500)
def _ours(statement: str) -> str:
    """SQLite numbers `?1` as written, but `$1` by where it first stands."""
    return statement.replace("$", "?")


@cache
def checksums() -> str:
    """The name by which SQLite knows files with checksums; EXTRA_MISSING where it cannot."""
    before = apsw.vfs_names()[0]
    loader = apsw.Connection(":memory:")
    try:
        apsw.sqlite_extra.load(loader, "cksumvfs")
    except (apsw.Error, apsw.sqlite_extra.NotAvailable) as error:
        raise refuse(
            Reason.EXTRA_MISSING,
            f"this apsw has no page checksums: {error}",
            action="install apsw from its wheel: "
            "pip install --only-binary apsw '/path/to/clone[sessiond]'",
        ) from None
    finally:
        loader.close()
    apsw.set_default_vfs(before)  # other files of this process are none of its business
    return "cksmvfs"


def open_raw(path: str, *, read_only: bool = False, create: bool = False) -> apsw.Connection:
    """A bare connection to a file with checksums; for what is no statement."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    if create:
        flags |= apsw.SQLITE_OPEN_CREATE
    try:
        raw = apsw.Connection(path, flags=flags, vfs=checksums(), statementcachesize=200)
    except apsw.Error as error:
        raise StoreBroken(f"{path} cannot be opened: {error}") from error
    raw.set_busy_timeout(BUSY_MS)
    return raw


@contextmanager
def sqlite_errors(raw: apsw.Connection) -> Iterator[None]:
    """Turn SQLite's errors into the store's."""
    try:
        yield
    except apsw.Error as error:
        raise store_error(error, raw) from error


def store_error(error: apsw.Error, raw: apsw.Connection) -> StoreFull | StoreBroken:
    """What an error of SQLite means for the store."""
    code = getattr(error, "extendedresult", 0)
    if (
        isinstance(error, apsw.FullError)
        # The index of the write-ahead log could not grow; it does nothing else.
        or code == apsw.SQLITE_IOERR_SHMSIZE
        or (code in _ROOM_TO_WRITE and raw.system_errno in _NO_ROOM)
    ):
        return StoreFull(str(error))
    if isinstance(error, apsw.CorruptError | apsw.NotADBError) or code in _DAMAGED:
        return StoreCorrupt(f"{raw.filename} is damaged: {error}")
    return StoreBroken(f"the store cannot be read or written: {error}")
