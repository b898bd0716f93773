"""What one watcher has not read yet: the newest value per key, merged.

A watcher that falls behind costs one value per key, however much happened, and
never makes a writer wait.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Generic, TypeVar

from carpal.errors import refuse
from carpal.status import Reason

K = TypeVar("K")
V = TypeVar("V")


class Pending(Generic[K, V]):
    """Newest values by key, until taken."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._ready = asyncio.Event()
        self._closed = False

    def put(self, key: K, value: V) -> None:
        """The key's newest value; one that waits is replaced and keeps its turn."""
        self._values[key] = value
        self._ready.set()

    def get(self, key: K) -> V | None:
        """The key's value that waits; none when none does."""
        return self._values.get(key)

    def count(self) -> int:
        """How many values wait."""
        return len(self._values)

    def discard(self, key: K) -> None:
        """The key's value no longer matters."""
        self._values.pop(key, None)

    def close(self) -> None:
        """The server stops: `take` refuses from now on."""
        self._closed = True
        self._ready.set()

    async def take(self, limit: int) -> list[tuple[K, V]]:
        """Wait, then up to `limit` of the values, oldest keys first; UNAVAILABLE when closed."""
        while not self._values and not self._closed:
            self._ready.clear()
            await self._ready.wait()
        if self._closed:
            raise refuse(Reason.UNAVAILABLE, "sessiond is stopping")
        return self.take_now(limit)

    def take_now(self, limit: int) -> list[tuple[K, V]]:
        """Up to `limit` of the values that wait; none when none does."""
        return [(key, self._values.pop(key)) for key in list(islice(self._values, limit))]


class Watchers(Generic[K, V]):
    """Those who watch one kind of thing, each with what it wants to hear of."""

    def __init__(self) -> None:
        self._wants: dict[Pending[K, V], Callable[[V], bool]] = {}
        self._closed = False

    @contextmanager
    def join(self, wants: Callable[[V], bool]) -> Iterator[Pending[K, V]]:
        """Watch until the block ends."""
        pending: Pending[K, V] = Pending()
        if self._closed:
            pending.close()
        self._wants[pending] = wants
        try:
            yield pending
        finally:
            del self._wants[pending]

    def tell(self, key: K, value: V) -> None:
        """Give the value to all who want it."""
        for pending, wants in self._wants.items():
            if wants(value):
                pending.put(key, value)

    def discard(self, key: K) -> None:
        """Nobody needs to hear the key's value any more."""
        for pending in self._wants:
            pending.discard(key)

    def close(self) -> None:
        """The server stops."""
        self._closed = True
        for pending in self._wants:
            pending.close()
