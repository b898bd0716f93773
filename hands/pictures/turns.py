"""Whose picture is scaled next: some at once in a daemon, one of each hand.

So no hand waits for another one's picture unless as many hands as that scale one, and then it is
the turn of who used least of late: a hand that has pictures scaled without end goes last.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_FADES = 30.0
"""Seconds in which half of what a hand used is forgotten."""
_FORGOTTEN = 0.01
"""Seconds of use that are none."""


@dataclass
class _Used:
    seconds: float
    when: float

    def now(self, when: float) -> float:
        """What is left of it."""
        return float(self.seconds * 0.5 ** ((when - self.when) / _FADES))


@dataclass(eq=False)
class _Waiting:
    whose: Hashable
    turn: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Turns:
    """Of one event loop."""

    def __init__(self, at_once: int, clock: Callable[[], float]) -> None:
        """`at_once` is how many have a turn at a time; `clock` counts seconds."""
        self._free = at_once
        self._clock = clock
        self._having: set[Hashable] = set()
        self._waiting: list[_Waiting] = []
        """In the order in which they came."""
        self._used: dict[Hashable, _Used] = {}

    @asynccontextmanager
    async def turn(self, whose: Hashable, limit: float) -> AsyncIterator[None]:
        """A turn while the block lasts. TimeoutError when it does not come in `limit` seconds."""
        await self._come(whose, limit)
        began = self._clock()
        try:
            yield
        finally:
            self._note(whose, began)
            self._free += 1
            self._having.discard(whose)
            self._next()

    async def _come(self, whose: Hashable, limit: float) -> None:
        one = _Waiting(whose)
        self._waiting.append(one)
        self._next()
        try:
            await asyncio.wait({one.turn}, timeout=limit)
        except asyncio.CancelledError:
            self._leave(one)
            raise
        if not one.turn.done():
            self._leave(one)
            raise TimeoutError

    def _leave(self, one: _Waiting) -> None:
        """It is not wanted any more, also where it just came."""
        if not one.turn.done():
            self._waiting.remove(one)
            return
        self._free += 1
        self._having.discard(one.whose)
        self._next()

    def _next(self) -> None:
        """Give each turn that is free to who used least, and came first of those."""
        now = self._clock()
        while self._free:
            may = [each for each in self._waiting if each.whose not in self._having]
            if not may:
                return
            one = min(may, key=lambda each: self._use(each.whose, now))
            self._waiting.remove(one)
            self._free -= 1
            self._having.add(one.whose)
            one.turn.set_result(None)

    def _use(self, whose: Hashable, now: float) -> float:
        used = self._used.get(whose)
        return used.now(now) if used else 0.0

    def _note(self, whose: Hashable, began: float) -> None:
        now = self._clock()
        seconds = self._use(whose, now) + now - began
        self._used[whose] = _Used(seconds, now)
        self._used = {who: each for who, each in self._used.items() if each.now(now) > _FORGOTTEN}
