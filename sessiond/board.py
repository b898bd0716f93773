"""Which sessions are runnable now, and who is told: a picture kept in the event loop.

It follows the commits. Nothing polls: what becomes runnable by time alone waits
in a heap, and the timer sleeps until the earliest.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sessiond.clock import SECOND, Clock
from sessiond.pending import Pending, Watchers
from sessiond.rows import SessionRow
from sessiond.rules.runnable import due_in

Offers = Pending[str, SessionRow]

_SPARE = 64
"""Outdated entries that are no reason to make the heap anew."""


class Board:
    """Sessions that are runnable, or will be without another commit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: dict[str, SessionRow] = {}
        self._later: dict[str, tuple[int, SessionRow]] = {}
        """With when to look at it again, in steady nanoseconds."""
        self._heap: list[tuple[int, str]] = []
        """The same times; outdated entries too, up to as many again."""
        self._watchers: Watchers[str, SessionRow] = Watchers()
        self._offset = clock.wall() - clock.steady()

    def update(self, sessions: Iterable[SessionRow]) -> None:
        """Sessions as a commit left them."""
        wall, steady = self._clock.wall(), self._clock.steady()
        for session in sessions:
            self._place(session, wall, steady)

    def advance(self) -> None:
        """Offer what has become runnable by time."""
        wall, steady = self._clock.wall(), self._clock.steady()
        if abs(wall - steady - self._offset) > SECOND:
            # Somebody set the clock that says when to wake: look at all again.
            self._offset = wall - steady
            self._heap = [(steady, session_id) for session_id in self._later]
        while self._heap and self._heap[0][0] <= steady:
            _, session_id = heapq.heappop(self._heap)
            later = self._later.get(session_id)
            if later is not None:
                self._place(later[1], wall, steady)

    def next_due(self) -> int | None:
        """When to call `advance`, in steady nanoseconds; None when a commit must come first."""
        return self._heap[0][0] if self._heap else None

    @contextmanager
    def watch(self, workspaces: frozenset[str]) -> Iterator[Offers]:
        """Offers of these workspaces (none means all), beginning with what is runnable now."""
        with self._watchers.join(_among(workspaces)) as offers:
            wants = _among(workspaces)
            for session_id, session in self._ready.items():
                if wants(session):
                    offers.put(session_id, session)
            yield offers

    def close(self) -> None:
        """The server stops: watchers are told."""
        self._watchers.close()

    def _place(self, session: SessionRow, wall: int, steady: int) -> None:
        session_id = session.session_id
        wait = due_in(session, wall, steady)
        self._later.pop(session_id, None)
        if wait is not None and wait <= 0:
            self._ready[session_id] = session
            self._watchers.tell(session_id, session)
            return
        if self._ready.pop(session_id, None) is not None:
            self._watchers.discard(session_id)
        if wait is not None:
            self._later[session_id] = (steady + wait, session)
            heapq.heappush(self._heap, (steady + wait, session_id))
            if len(self._heap) > 2 * len(self._later) + _SPARE:
                self._heap = [(due, sleeper) for sleeper, (due, _) in self._later.items()]
                heapq.heapify(self._heap)


def _among(workspaces: frozenset[str]) -> Callable[[SessionRow], bool]:
    return lambda session: not workspaces or session.workspace in workspaces
