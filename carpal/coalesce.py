"""The outbox: one writer's queue, drained as frames of many messages.

A gRPC message costs 100–250 µs of CPU whatever is in it, so what waits is
sent together (docs/adr/0003-few-big-frames.md). Concurrent writes on one
stream fail, so exactly one task drains an outbox.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, Protocol, TypeVar

FRAME_BYTES = 256 * 1024
"""A frame's payload stays at or under this, unless one message alone exceeds it."""


class Sized(Protocol):
    """Any protobuf message."""

    def ByteSize(self) -> int:
        """Serialized size in bytes."""


M = TypeVar("M", bound=Sized)


class Outbox(Generic[M]):
    """Messages waiting for their one writer; urgent ones go first."""

    def __init__(self, frame_bytes: int | None = None) -> None:
        """`frame_bytes` takes the place of FRAME_BYTES."""
        self._frame_bytes = FRAME_BYTES if frame_bytes is None else frame_bytes
        self._urgent: deque[M] = deque()
        self._queue: deque[M] = deque()
        self._ready = asyncio.Event()
        self._closed = False

    def put(self, message: M, *, urgent: bool = False) -> None:
        """Queue a message; after close it is dropped, since nobody would send it."""
        if self._closed:
            return
        (self._urgent if urgent else self._queue).append(message)
        self._ready.set()

    def close(self) -> None:
        """Let the writer send what is queued and then end."""
        self._closed = True
        self._ready.set()

    async def frames(self) -> AsyncIterator[list[M]]:
        """Batches for the one writer, until closed and empty."""
        while True:
            while self._urgent or self._queue:
                yield self._take()
            if self._closed:
                return
            self._ready.clear()
            await self._ready.wait()

    def _take(self) -> list[M]:
        batch: list[M] = []
        size = 0
        while self._urgent or self._queue:
            source = self._urgent or self._queue
            cost = source[0].ByteSize()
            if batch and size + cost > self._frame_bytes:
                break
            batch.append(source.popleft())
            size += cost
        return batch
