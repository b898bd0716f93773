"""The one timer: ends leases as they expire and offers sessions as their time comes.

It sleeps until the earliest deadline and is woken by commits that may have
moved it; nothing is polled.
"""

import asyncio
import logging

from carpal.errors import CarpalError
from carpal.status import Reason
from sessiond.board import Board
from sessiond.clock import SECOND, Clock
from sessiond.lease_table import LeaseTable
from sessiond.rows import Needs
from sessiond.rules.leases import Leases
from sessiond.writer import Writer

_log = logging.getLogger(__name__)

LONGEST_SLEEP = 30 * SECOND
"""So that a step of the wall clock, which sets when sleepers wake, is noticed."""
PAUSE = 5 * SECOND
"""Between tries to end leases that cannot be written. Nobody can use them meanwhile."""
NEWS = SECOND // 4
"""Between looks at leases that seem due here and are not in the store."""


class Deadlines:
    """Runs until cancelled, beside the server."""

    def __init__(
        self, clock: Clock, writer: Writer, rules: Leases, table: LeaseTable, board: Board
    ) -> None:
        self._clock = clock
        self._writer = writer
        self._rules = rules
        self._table = table
        self._board = board
        self._moved = asyncio.Event()
        self._paused_until = 0
        """Steady nanoseconds; no lease is ended before."""

    def look_again(self) -> None:
        """A deadline may have moved."""
        self._moved.set()

    async def run(self) -> None:
        """Act on each deadline when it comes."""
        while True:
            self._moved.clear()
            await self.act()
            wait = self._wait()
            try:
                async with asyncio.timeout(None if wait is None else wait / SECOND):
                    await self._moved.wait()
            except TimeoutError:
                continue

    async def act(self) -> None:
        """Do what is due now.

        On a full disk leases end later; the process goes on. When the store broke,
        the writer is the one to say so, and why.
        """
        expiry = self._next_expiry()
        while expiry is not None and expiry <= self._clock.steady():
            before, more = expiry, False
            try:
                more = await self._writer.run(self._rules.expire, needs=Needs(due=True))
            except CarpalError as error:
                if error.reason not in (Reason.STORE_FULL, Reason.UNAVAILABLE):
                    raise
                _log.error("expired leases not ended", extra={"problem": error.message})
                self._paused_until = self._clock.steady() + PAUSE
            expiry = self._next_expiry()
            if expiry == before and not more:
                # Another process renewed it or ended it, which is about to be told here.
                self._paused_until = self._clock.steady() + NEWS
                expiry = self._next_expiry()
        self._board.advance()

    def _next_expiry(self) -> int | None:
        expiry = self._table.next_expiry()
        return None if expiry is None else max(expiry, self._paused_until)

    def _wait(self) -> int | None:
        """Nanoseconds until the next deadline; None when there is none."""
        expiry, due = self._next_expiry(), self._board.next_due()
        now = self._clock.steady()
        waits = [expiry - now] if expiry is not None else []
        if due is not None:
            waits.append(min(due - now, LONGEST_SLEEP))
        return max(0, min(waits)) if waits else None
