"""When pages send the browser more than it takes in, and which of them is ended for it. Pure.

What a page makes known (what it logs, where it goes, its frames) comes to the hand by way of three
processes that all tabs share, and nothing holds the page up meanwhile: what waits there grows, and
with it their memory and the time until anything is answered. So the page that is busiest is ended
before all tabs are lost. Which page a message is of is known only at the end of that way, which
is too late; that one that floods is busy is known at once.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

HELD_MAX = 500 * 1024**2
"""Bytes of one of the three: with 25 tabs none has half of that."""
_MORE = 150 * 1024**2
"""Bytes that one must grow by to be too large once more: it gives little back."""
WAITED_MAX = 5.0
"""Seconds until the browser answers what needs no page."""
WAITED_WORKING = 2.0
"""The same, while one of the three has no time for anything else: what a page sent in two seconds
may take one twenty."""
_WORKING = 0.5
"""Of a processor that such a one has: less is a machine that is busy with other things."""
_WINDOW = 1.0
"""Seconds in which the busiest is looked for."""
_SETTLES = 2.0
"""Seconds after an end in which what was sent before is still taken in."""
_BUSY = 0.2
"""Of a processor, at least: another page is not at fault."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How it is at a time, in seconds."""

    at: float
    held: Mapping[int, int]
    """Bytes of each process that all tabs share, by its id."""
    worked: Mapping[int, float]
    """Seconds of a processor that each of them had."""
    used: Mapping[int, float]
    """Seconds of a processor that each page's process had, by its id."""
    waited: float = 0.0
    """Seconds that the browser has been asked something and did not answer."""


class Floods:
    """What was seen of one browser."""

    def __init__(self) -> None:
        self._seen: deque[Seen] = deque()
        self._ended = float("-inf")
        self._marks: dict[int, int] = {}
        """What each held at its most just after an end."""

    def look(self, now: Seen) -> int | None:
        """The process to end; None when there is none."""
        self._seen.append(now)
        while len(self._seen) > 2 and self._seen[1].at <= now.at - _WINDOW:
            self._seen.popleft()
        settling = now.at - self._ended < _SETTLES
        for pid, held in now.held.items():
            if held < HELD_MAX:
                self._marks.pop(pid, None)
            elif settling:
                self._marks[pid] = max(held, self._marks.get(pid, 0))
        large = not settling and any(
            held > max(HELD_MAX, self._marks.get(pid, 0) + _MORE) for pid, held in now.held.items()
        )
        waits = WAITED_WORKING if self._working() else WAITED_MAX
        slow = now.waited > waits and now.at - self._ended > WAITED_MAX
        return self.end() if large or slow else None

    def _working(self) -> bool:
        first, last = self._seen[0], self._seen[-1]
        spent = _spent(first.worked, last.worked).values()
        return max(spent, default=0.0) > _WORKING * (last.at - first.at)

    def end(self) -> int | None:
        """That which is busiest now, which is ended then."""
        first, last = self._seen[0], self._seen[-1]
        used = _spent(first.used, last.used)
        busiest = max(used, key=lambda pid: used[pid], default=None)
        if busiest is None or used[busiest] < _BUSY * (last.at - first.at):
            return None
        self._ended = last.at
        return busiest


def _spent(first: Mapping[int, float], last: Mapping[int, float]) -> dict[int, float]:
    """What each had since: all of it, one that was not there at first."""
    return {pid: spent - first.get(pid, 0.0) for pid, spent in last.items()}
