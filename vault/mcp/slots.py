"""How many calls go on at a time: of a session at one server, at one server, and at all."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager

from vault.mcp.refusals import Refusal, Why

SERVER, ALL = 64, 256
WAIT = 30.0
"""Seconds that a call waits for its turn."""

Limits = Mapping[Hashable, int]


class Slots:
    """Those there are. Who waits gets its turn in order, among those that wait for the same."""

    def __init__(self, server: int = SERVER, together: int = ALL) -> None:
        self._server = server
        self._together = together
        self._used: Counter[Hashable] = Counter()
        self._waiting: dict[asyncio.Future[None], Limits] = {}

    @asynccontextmanager
    async def held(self, session: str, server: str, most: int) -> AsyncIterator[None]:
        """Around a call. Raises AT_CAPACITY."""
        limits: Limits = {
            ("session", session, server): most,
            ("server", server): self._server,
            "all": self._together,
        }
        await self._turn(limits)
        try:
            yield
        finally:
            self._release(limits)

    async def _turn(self, limits: Limits) -> None:
        if self._take(limits):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = limits
        try:
            async with asyncio.timeout(WAIT):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._release(limits)  # its turn came as it left
            if isinstance(error, TimeoutError):
                raise Refusal(Why.AT_CAPACITY) from None
            raise
        finally:
            self._waiting.pop(turn, None)

    def _take(self, limits: Limits) -> bool:
        if any(self._used[key] >= most for key, most in limits.items()):
            return False
        self._used.update(limits.keys())
        return True

    def _release(self, limits: Limits) -> None:
        for key in limits:
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]
        for turn, wanted in list(self._waiting.items()):
            if not turn.done() and self._take(wanted):
                turn.set_result(None)
