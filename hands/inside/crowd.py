"""Room for a call beside what earlier ones left running: a fork bomb leaves none.

Only who is at the limit, or on the way there, is killed. Many background
processes are no bomb: a build, a server with its workers.
"""

import time
from collections.abc import Sequence

from hands.inside import tree
from hands.inside.runner import Runner, room_for

_CROWD = 32
"""Background processes from which on a bomb is thought of."""
_ROOM = (16, 16)
"""Processes for which there must be room beside them, each time it is looked. One alone tells
little: where a bomb is at its limit, some of it ends all the time."""
_GROWTH = 1.25
"""Times as many processes after that look, which takes a moment: nothing but a bomb grows so."""
_SOON = 0.1
"""Seconds to the next look beside a call where there are more of them than there were,"""
_SELDOM = 1.0
"""and at most where there are not: a look costs some milliseconds."""


def make_room(roots: Sequence[Runner]) -> int:
    """Kill what is below these roots where it leaves no room; says how many that were."""
    left = _below(roots)
    if not left or _has_room(roots, left):
        return 0
    return sum(tree.kill_below(root.pid) for root in roots)


class Watch:
    """Looks, while a call runs, whether what earlier ones left running grows and takes its room."""

    def __init__(self, roots: Sequence[Runner]) -> None:
        """`roots` are theirs."""
        self._roots = roots
        self._least = _below(roots)
        """Processes of theirs when they were fewest: what takes the room later came since."""
        self._pause = _SOON
        self.due = time.monotonic() + _SOON if roots else float("inf")
        """When to look again."""

    def look(self, now: float) -> int:
        """Kill them if they grew and leave no room; says how many that were."""
        # One that ended may have left its pid to the very call that is to have room.
        self._roots = [root for root in self._roots if tree.alive(root.pid, root.start)]
        left = _below(self._roots)
        self._least = min(self._least, left)
        grew = left > self._least * _GROWTH
        self._pause = _SOON if grew else min(2 * self._pause, _SELDOM)
        self.due = now + self._pause
        if not grew or _room_beside(left):
            return 0
        self._least = 0
        return sum(tree.kill_below(root.pid) for root in self._roots)


def _has_room(roots: Sequence[Runner], left: int) -> bool:
    if left < _CROWD:
        return room_for(1)
    # One that is not at its limit yet will be, in the middle of the call.
    return _room_beside(left) and _below(roots) < left * _GROWTH


def _room_beside(left: int) -> bool:
    return room_for(1) if left < _CROWD else all(map(room_for, _ROOM))


def _below(roots: Sequence[Runner]) -> int:
    return len(tree.descendants(*(root.pid for root in roots))) if roots else 0
