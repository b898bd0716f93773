"""Work with an end: when its time is over, or as soon as another says so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Stoppable:
    """One piece of work."""

    def __init__(self, limit: float | None = None) -> None:
        """`limit` is in seconds; None for no end but `stop`."""
        self.stopped = False
        """Someone said so."""
        self._limit = limit
        self._scope: asyncio.Timeout | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around the work. Raises TimeoutError when it was cut short."""
        if self.stopped:
            raise TimeoutError("stopped before it began")
        try:
            async with asyncio.timeout(self._limit) as self._scope:
                yield
        finally:
            self._scope = None

    def stop(self) -> None:
        """Cut it short, or do not begin it; again is no error."""
        self.stopped = True
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(0)
