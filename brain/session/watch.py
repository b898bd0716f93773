"""What a session is doing now: deltas and output for watchers; never stored.

Best effort by design: a watcher that falls behind misses moments, and no
watcher ever holds up a runner. The log is the truth.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from carpal.v1 import orchestrator_pb2

_BEHIND = 1_000
"""Moments a watcher may be behind before it misses some."""
_BEHIND_BYTES = 2 * 1024 * 1024
"""Bytes of moments, likewise: output may come in large pieces, and watchers are many."""


class Moments(asyncio.Queue[orchestrator_pb2.WatchResponse | None]):
    """A watcher's moments; full by number or by bytes. The last is None, if there is a last."""

    def __init__(self) -> None:
        super().__init__(_BEHIND)
        self._bytes = 0

    def full(self) -> bool:
        """Whether the watcher is as far behind as it may be."""
        return super().full() or self._bytes >= _BEHIND_BYTES

    async def each(self) -> AsyncGenerator[orchestrator_pb2.WatchResponse, None]:
        """What comes, until the end."""
        while (moment := await self.get()) is not None:
            yield moment

    def end(self) -> None:
        """No more comes; what is still here is given first, but for one moment if it is full."""
        if super().full():
            self.get_nowait()
        self._bytes = 0  # bytes keep nothing out any more, and the end has none
        self.put_nowait(None)

    def _get(self) -> orchestrator_pb2.WatchResponse | None:
        moment = super()._get()
        if moment is not None:
            self._bytes -= moment.ByteSize()
        return moment

    def _put(self, item: orchestrator_pb2.WatchResponse | None) -> None:
        if item is not None:
            self._bytes += item.ByteSize()
        super()._put(item)


class WatchHub:
    """Watchers of the sessions this brain drives."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Moments]] = {}

    @contextmanager
    def watching(self, session_id: str) -> Iterator[Moments]:
        """A queue of a session's moments while the block lasts."""
        queue = Moments()
        self._watchers.setdefault(session_id, set()).add(queue)
        try:
            yield queue
        finally:
            watchers = self._watchers[session_id]
            watchers.discard(queue)
            if not watchers:
                del self._watchers[session_id]

    def tell(self, session_id: str, moment: orchestrator_pb2.WatchResponse) -> None:
        """Give a moment to whoever watches."""
        for queue in self._watchers.get(session_id, ()):
            if not queue.full():
                queue.put_nowait(moment)
