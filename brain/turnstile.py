"""A turnstile: of many tasks that could all go on at once, so many do in each pass of the loop.

A pass runs whatever is ready. When a thousand replies of the model come
together, it would take seconds, in which no lease is renewed and no daemon
answered; so they go on a few a pass, and everything else is served between.
"""

import asyncio
from collections import deque


class Turnstile:
    """Of one event loop. In order; nobody waits while few come."""

    def __init__(self, each: int) -> None:
        """`each`: how many go through in one pass."""
        self._each = each
        self._passed = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def through(self) -> None:
        """Go through, in this pass or a later one."""
        loop = asyncio.get_running_loop()
        if not self._passed:
            loop.call_soon(self._next, loop)
        if self._passed < self._each:
            self._passed += 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Another pass."""
        self._passed = 0
        while self._waiting and self._passed < self._each:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                self._passed += 1
        if self._passed:
            loop.call_soon(self._next, loop)
