"""What the service works with: the store, its writer and readers, and who is told of commits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from carpal.errors import refuse
from carpal.status import Reason
from sessiond.board import Board
from sessiond.clock import Clock
from sessiond.deadlines import Deadlines
from sessiond.lease_table import LeaseTable
from sessiond.readers import Readers
from sessiond.rows import Changes
from sessiond.rules.blobs import BLOB_CAP
from sessiond.rules.leases import Leases
from sessiond.store import Reader, Store, StoreUnavailable
from sessiond.sweeper import Sweeper
from sessiond.tail import Tails
from sessiond.writer import Writer


@dataclass(frozen=True)
class Parts:
    """One running store and everything that follows its commits."""

    store: Store
    clock: Clock
    writer: Writer
    readers: Readers
    rules: Leases
    table: LeaseTable
    board: Board
    tails: Tails
    sweeper: Sweeper
    deadlines: Deadlines
    blob_cap: int
    """Bytes of one workspace's blobs."""
    following: "asyncio.Task[None]"
    """Tells what other processes commit. Should it end, this one no longer knows."""

    def committed(self, changes: Changes) -> None:
        """Tell everyone who watches, in the event loop, right after a commit."""
        self.sweeper.update(changes.sessions)
        self.table.update(changes.leases)
        self.board.update(changes.sessions)
        self.tails.update(changes)
        # Only these can have moved a deadline; plain appends are by far the most.
        if changes.leases or self.board.next_due() is not None:
            self.deadlines.look_again()

    async def up_to_date(self) -> None:
        """Return once `table` and `board` know all that was committed before, by whoever."""
        try:
            await self.store.up_to_date()
        except StoreUnavailable as error:
            raise refuse(Reason.UNAVAILABLE, "the store does not answer") from error

    def close_streams(self) -> None:
        """The server stops: every watch and tail is told so."""
        self.table.close()
        self.board.close()
        self.tails.close()


@asynccontextmanager
async def running(store: Store, source: str, *, blob_cap: int = BLOB_CAP) -> AsyncIterator[Parts]:
    """Start on an open store; on leaving, finish what is queued and close the store.

    `source` is this process's SPIFFE URI, for events it appends itself.
    """
    clock = store.clock
    store.restart()
    readers = Readers(store)
    writer = Writer(store)
    rules, table, board = Leases(source), LeaseTable(), Board(clock)
    tails = Tails(readers)
    known = await readers.run(_picture)
    table.update(known.leases)
    board.update(known.sessions)

    def told(changes: Changes) -> None:
        parts.committed(changes)

    following = asyncio.create_task(store.follow(told, tails.sessions, known))
    parts = Parts(
        store=store,
        clock=clock,
        writer=writer,
        readers=readers,
        rules=rules,
        table=table,
        board=board,
        sweeper=Sweeper(store, writer, readers),
        tails=tails,
        deadlines=Deadlines(clock, writer, rules, table, board),
        blob_cap=blob_cap,
        following=following,
    )
    writer.listen(parts.committed)
    writer.start()
    try:
        yield parts
    finally:
        following.cancel()
        parts.close_streams()
        await writer.close()
        await readers.close()
        await asyncio.wait({following})
        store.close()


def _picture(reader: Reader) -> Changes:
    """All work, and all that is held."""
    with reader.snapshot():
        return Changes(tuple(reader.with_work()), tuple(reader.live_leases()))
