"""Connections kept for the next request of the same lane, and for no other.

A lane is a grant and a credential's generation: what a server left in a connection, or what it
was told who speaks, never meets another session.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

import httpcore2

_KEPT = 256
"""Lanes; of more, those that were used least recently are closed."""

Key = tuple[Hashable, ...]


class _Lane:
    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self.pool = pool
        self.users = 0
        self.over = False


class Lanes:
    """The pools of connections of all lanes."""

    def __init__(self, make: Callable[..., httpcore2.AsyncConnectionPool]) -> None:
        self._make = make
        self._lanes: OrderedDict[Key, _Lane] = OrderedDict()

    @asynccontextmanager
    async def pool(
        self, key: Key | None, settings: tuple[Any, ...]
    ) -> AsyncIterator[httpcore2.AsyncConnectionPool]:
        """The lane's pool; without a key one of its own, closed at the end."""
        lane = self._lanes.get(key) if key is not None else None
        if lane is None:
            lane = _Lane(self._make(*settings))
            if key is None:
                lane.over = True
            else:
                self._lanes[key] = lane
        if key is not None:
            self._lanes.move_to_end(key)
        lane.users += 1
        try:
            yield lane.pool
        finally:
            lane.users -= 1
            if lane.over and not lane.users:
                await lane.pool.aclose()
            await self._trim()

    async def forget(self, name: Hashable) -> None:
        """Close a lane of this name; requests on their way go on to their end."""
        for key in [each for each in self._lanes if each[0] == name]:
            await self._close(self._lanes.pop(key))

    async def aclose(self) -> None:
        """Close all."""
        while self._lanes:
            await self._close(self._lanes.popitem()[1])

    async def _trim(self) -> None:
        while len(self._lanes) > _KEPT:
            await self._close(self._lanes.popitem(last=False)[1])

    async def _close(self, lane: _Lane) -> None:
        lane.over = True
        if not lane.users:
            await lane.pool.aclose()
