"""Fencing after a restore: whoever drove before it drives no more.

What was granted after the backup is not in it, so a count alone would grant the same
epochs again. The generation, their high bits, is raised instead: beyond what the backup and
the store it replaces had, and to the time, so that two restores of one backup differ too.
"""

from typing import NamedTuple

from sessiond.rows import LeaseState
from sessiond.sql.connection import Connection
from sessiond.store import StoreBroken

_BEGAN = 1_735_689_600
"""2025-01-01, in seconds since 1970: with 31 bits, generations last until 2093."""
_LAST = 2**31 - 1
_ROOM = 2**24
"""For restores whose clock tells nothing: each takes the next."""


class Fenced(NamedTuple):
    """What was done."""

    generation: int
    leases: int
    """That had not ended."""
    sessions: int
    """Of any state, but for tombstones."""


def generation(connection: Connection) -> int:
    """Of the store as it is."""
    return int(connection.execute("SELECT value FROM meta WHERE key = 'generation'")[0][0])


def fence(connection: Connection, wall: int, at_least: int = 0) -> Fenced:
    """Raise the generation above `at_least`, end every lease, and free every session.

    `wall`: nanoseconds since 1970. A transaction of its own; nobody may serve the store.
    """
    connection.begin()
    try:
        seconds = wall // 1_000_000_000 - _BEGAN
        if not 0 <= seconds < _LAST - _ROOM:
            # The machine's clock is wrong: an epoch has no room for what it says.
            seconds = 0
        raised = max(generation(connection) + 1, at_least + 1, seconds)
        if raised > _LAST:
            raise StoreBroken("no generation is left")
        live = connection.execute(
            "SELECT count(*) FROM leases WHERE state = $1", (int(LeaseState.LIVE),)
        )
        kept = connection.execute("SELECT count(*) FROM sessions WHERE deleted IS NULL")
        connection.execute("UPDATE meta SET value = $1 WHERE key = 'generation'", (raised,))
        # The released ones too: else a release that is sent again would be answered.
        connection.execute("UPDATE leases SET state = $1", (int(LeaseState.EXPIRED),))
        connection.execute(
            "UPDATE sessions SET driven = 0, progressed = 0, not_before = NULL "
            "WHERE driven <> 0 OR progressed <> 0 OR not_before IS NOT NULL"
        )
        connection.commit()
    finally:
        connection.rollback()
    return Fenced(raised, int(live[0][0]), int(kept[0][0]))
