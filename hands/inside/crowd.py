"""Room for a call beside what earlier ones left running: a fork bomb leaves none.

Only who is at the limit, or on the way there, is killed. Many background
processes are no bomb: a build, a server with its workers.
"""

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


def make_room(roots: Sequence[Runner]) -> int:
    """Kill what is below these roots where it leaves no room; says how many that were."""
    left = _below(roots)
    if not left or _has_room(roots, left):
        return 0
    return sum(tree.kill_below(root.pid) for root in roots)


def _has_room(roots: Sequence[Runner], left: int) -> bool:
    if left < _CROWD:
        return room_for(1)
    room = all(map(room_for, _ROOM))
    # One that is not at its limit yet will be, in the middle of the call.
    return room and _below(roots) < left * _GROWTH


def _below(roots: Sequence[Runner]) -> int:
    return len(tree.descendants(*(root.pid for root in roots))) if roots else 0
