"""The session store on SQLite: one file, one writer, one process.

WAL with `synchronous=FULL`: a commit is on disk when it returns. The write-ahead
log is copied back by a thread of its own, since a checkpoint inside a commit
makes that commit wait for it.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from sessiond.clock import Clock
from sessiond.rows import Changes, Needs
from sessiond.sql.reader import SqlReader
from sessiond.sql.transaction import SqlTransaction
from sessiond.sqlite.checkpoint import Checkpointer
from sessiond.sqlite.connection import SqliteConnection
from sessiond.sqlite.file import keep_as_found, open_store, refusal
from sessiond.sqlite.lock import StoreLock
from sessiond.store import Reader, StoreBroken, StoreFull, Transaction


class SqliteStore:
    """Implements `store.Store`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Open or create the file.

        CONFIG_INVALID when it is another's, or in use; DATA_CORRUPT when it is damaged;
        STORE_FULL when its disk has no room for a start.
        """
        self.clock = clock
        self._path = path
        self._lock = StoreLock.soon(path)
        try:
            self._connection = open_store(path, self._lock)
            try:
                self._checkpointer = Checkpointer(
                    str(path), self._lock.committed, self._lock.copied_back
                )
            except (StoreBroken, StoreFull) as error:
                keep_as_found(self._connection)
                raise refusal(path, error) from error
        except BaseException:
            self._lock.close()
            raise
        self._transaction = SqlTransaction(
            self._connection, blob="BLOB", sole_writer=True, chunked=True
        )
        self._connection.raw.set_wal_hook(self._checkpointer.wal_grew)

    def restart(self) -> None:
        """See `store.Store`."""
        connection = self._connection
        try:
            connection.begin()
            connection.execute(
                "UPDATE leases SET expires = term + $1 WHERE state = 0", (self.clock.steady(),)
            )
            connection.execute("UPDATE sessions SET not_before = NULL WHERE not_before IS NOT NULL")
            connection.commit()
        except (StoreBroken, StoreFull) as error:
            raise refusal(self._path, error) from error
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
        changes = self._transaction.commit()
        if self._transaction.erases:
            self._checkpointer.erase_soon()
        return changes

    @property
    def erasing(self) -> bool:
        """See `store.Store`."""
        return self._checkpointer.erasing

    def rollback(self) -> None:
        """See `store.Store`."""
        self._transaction.rollback()

    def abandon(self) -> None:
        """See `store.Store`. A disk cannot be left in the middle."""

    def maintain(self) -> None:
        """See `store.Store`."""
        self._checkpointer.start_over(self._connection.raw)
        self._checkpointer.erase(self._connection.raw, self._lock.nothing_noted)

    def reader(self) -> Reader:
        """See `store.Store`."""
        return SqlReader(SqliteConnection(str(self._path), read_only=True))

    async def follow(
        self,
        changed: Callable[[Changes], None],
        tailed: Callable[[], Collection[str]],
        known: Changes,
    ) -> None:
        """See `store.Store`. Nobody else writes this file."""
        await asyncio.Event().wait()

    async def up_to_date(self) -> None:
        """See `store.Store`. Nobody else writes this file."""

    def close(self) -> None:
        """See `store.Store`."""
        self._checkpointer.stop()
        self._lock.nothing_noted()  # closing copies the write-ahead log back and removes it
        self._connection.close()
        self._lock.close()
