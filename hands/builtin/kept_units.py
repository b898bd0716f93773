"""The units that a hand type of others named last, asked for again and again in the background.

So whoever wants to know waits for nothing. A question that fails, or is late, leaves the answer
before it as it was: a phone is not gone because its type hangs. Why there is no newer one is
`problem`, which the type's probe says.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from hands.contract import Unit, UnitsUnknown

log = logging.getLogger(__name__)

AGAIN = 10.0
"""Seconds from an answer to the next question."""
FIRST = 5.0
"""Seconds that the daemon's start waits for the first answer."""


class KeptUnits:
    """Of one type. Without `open` it has none, and no problem."""

    def __init__(self, ask: Callable[[], Awaitable[Sequence[Unit]]]) -> None:
        """`ask` is bounded in time, and raises ValueError, with why, and nothing else."""
        self.problem = ""
        """Why it is not known which there are now."""
        self._ask = ask
        self._named: Sequence[Unit] | None = None
        self._asking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to ask; returns with the first answer, or when that takes long."""
        self.problem = "they are asked for still"
        first = asyncio.Event()
        self._asking = asyncio.create_task(self._keep_asking(first))
        self._asking.add_done_callback(self._asks_no_more)
        answered = asyncio.create_task(first.wait())
        waited = {answered, self._asking}
        await asyncio.wait(waited, timeout=FIRST, return_when=asyncio.FIRST_COMPLETED)
        answered.cancel()

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is None:
            return
        asking, self._asking = self._asking, None
        asking.cancel()
        await asyncio.wait({asking})

    def named(self) -> Sequence[Unit]:
        """Those of the last answer. Raises UnitsUnknown while there was none."""
        if self._named is None:
            raise UnitsUnknown(self.problem)
        return self._named

    def _asks_no_more(self, asking: "asyncio.Task[None]") -> None:
        """Say so where nobody wanted that: a bug here, or in what asks."""
        if not asking.cancelled() and (error := asking.exception()):
            self.problem = f"they are asked for no more, until the daemon is started anew: {error}"
            log.error("units are asked for no more", exc_info=error)

    async def _keep_asking(self, first: asyncio.Event) -> None:
        while True:
            try:
                self._named, problem = await self._ask(), ""
            except ValueError as error:
                problem = str(error)
            if problem and problem != self.problem:
                log.warning("which units there are is not known", extra={"why": problem})
            self.problem = problem
            first.set()
            await asyncio.sleep(AGAIN)  # a phone that is plugged in is announced by nobody
