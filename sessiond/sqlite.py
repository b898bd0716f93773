"""The session store on SQLite: one file, one writer, one process.

WAL with `synchronous=FULL`: a commit is on disk when it returns. The write-ahead
log is copied back by a thread of its own, since a checkpoint inside a commit
makes that commit wait for it.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from carpal.errors import refuse
from carpal.status import Reason
from sessiond.clock import Clock
from sessiond.rows import Changes, Needs
from sessiond.sql.reader import SqlReader
from sessiond.sql.schema import VERSION
from sessiond.sql.transaction import SqlTransaction
from sessiond.sqlite_connection import SqliteConnection
from sessiond.sqlite_schema import APPLICATION_ID, SCHEMA
from sessiond.store import Reader, StoreBroken, Transaction

_log = logging.getLogger(__name__)

_CHECKPOINT_PAGES = 1_000
"""Pages (of 4 KiB) in the write-ahead log from which on it is copied back."""
_RESET_PAGES = 32_768
"""128 MiB. Under constant load a checkpoint never finds the log at rest, so it would grow."""


class SqliteStore:
    """Implements `store.Store`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Open or create the file; CONFIG_INVALID when it is another's, or in use."""
        self.clock = clock
        self._path = str(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _lock(path)
        try:
            self._connection = _open(path)
        except BaseException:
            os.close(self._lock)
            raise
        self._transaction = SqlTransaction(self._connection, blob="BLOB", sole_writer=True)
        self._checkpointer = _Checkpointer(self._path)
        self._connection.raw.set_wal_hook(self._checkpointer.wal_grew)

    def restart(self) -> None:
        """See `store.Store`."""
        connection = self._connection
        connection.begin()
        try:
            connection.execute(
                "UPDATE leases SET expires = term + $1 WHERE state = 0", (self.clock.steady(),)
            )
            connection.execute("UPDATE sessions SET not_before = NULL WHERE not_before IS NOT NULL")
            connection.commit()
        finally:
            connection.rollback()
        self._transaction.forget()

    def begin(self, needs: Sequence[Needs] = ()) -> Transaction:
        """See `store.Store`."""
        self._connection.begin()
        self._transaction.begin(self.clock.wall(), self.clock.steady(), needs)
        return self._transaction

    def commit(self) -> Changes:
        """See `store.Store`."""
        return self._transaction.commit()

    def rollback(self) -> None:
        """See `store.Store`."""
        self._transaction.rollback()

    def maintain(self) -> None:
        """See `store.Store`."""
        if self._checkpointer.pages < _RESET_PAGES:
            return
        try:
            self._connection.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            _log.info("a long read keeps the write-ahead log from starting over")
        except apsw.Error as error:
            # Nothing is lost: the log holds it. The next commit meets the same disk.
            _log.error("checkpoint failed", extra={"error": str(error)})

    def reader(self) -> Reader:
        """See `store.Store`."""
        return SqlReader(SqliteConnection(self._path, flags=apsw.SQLITE_OPEN_READONLY))

    async def follow(self, changed: Callable[[Changes], None]) -> None:
        """See `store.Store`. Nobody else writes this file."""

    def close(self) -> None:
        """See `store.Store`."""
        self._checkpointer.stop()
        self._connection.close()
        os.close(self._lock)


class _Checkpointer:
    """Copies the write-ahead log back to the file, on its own connection and thread."""

    def __init__(self, path: str) -> None:
        self.pages = 0
        """In the log, as of the last commit."""
        self._connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        self._wanted = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def wal_grew(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """SQLite calls this after each commit."""
        self.pages = pages
        if pages >= _CHECKPOINT_PAGES:
            self._wanted.set()
        return apsw.SQLITE_OK

    def stop(self) -> None:
        """Finish the checkpoint that runs, if one does."""
        self._stopped = True
        self._wanted.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._stopped:
                return
            self._wanted.clear()
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except (apsw.BusyError, apsw.LockedError):
                _log.debug("checkpoint postponed")  # the next commit asks again
            except apsw.Error as error:
                # As in `maintain`.
                _log.error("checkpoint failed", extra={"error": str(error)})


def _lock(path: Path) -> int:
    """Hold the store for this process; the kernel lets go when the process ends."""
    lock = os.open(
        path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} is in use by another sessiond",
            action="stop it, or choose another --state-dir",
        ) from None
    return lock


def _open(path: Path) -> SqliteConnection:
    try:
        connection = SqliteConnection(str(path))
        path.chmod(0o600)
        # recursive_triggers: or INSERT OR REPLACE would remove rows past the triggers.
        # secure_delete: what was redacted or deleted is overwritten, not only unlinked.
        connection.raw.execute(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;"
            "PRAGMA recursive_triggers = ON; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON"
        )
        _migrate(connection, path)
    except apsw.NotADBError:
        raise refuse(
            Reason.CONFIG_INVALID, f"{path} is not a session store", action="choose another file"
        ) from None
    except (apsw.Error, StoreBroken) as error:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} cannot be opened: {error}",
            action="check the folder's owner, and that its disk has room",
        ) from None
    return connection


def _migrate(connection: SqliteConnection, path: Path) -> None:
    raw = connection.raw
    version = raw.pragma("user_version")
    if version == 0 and raw.pragma("schema_version") == 0:
        raw.execute(
            f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {VERSION}; COMMIT"
        )
    elif raw.pragma("application_id") != APPLICATION_ID:
        raise refuse(
            Reason.CONFIG_INVALID, f"{path} is not a session store", action="choose another file"
        )
    elif version > VERSION:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} was written by a newer sessiond (schema {version}, this one knows {VERSION})",
            action="run the newer sessiond",
        )
    elif version < VERSION:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} was written by a sessiond before the first release (schema {version})",
            action="choose another --state-dir",
        )
