"""Drains: a brain asks its daemons to leave before every cut that is planned.

A daemon that was asked dials another brain in its own time and loses no call; one that is cut
finds that out by an error. So a link is drained before the certificate of either end runs out,
when it is as old as links may get, and when the brain stops. Pure but for chance, which is given.
"""

from dataclasses import dataclass
from datetime import datetime

from carpal.identity import Identity

LEAD = 600.0
"""Seconds before a certificate's end by which its link is drained, at the latest."""
LEAD_SHARE = 0.1
"""The same as a share of the certificate's life, for one that lives for less than two hours."""
PER_SECOND = 200
"""Daemons that may come to the other brains in a second; a handshake is a millisecond or two."""
SPREAD_MAX = 5.0
"""Seconds over which the daemons of a brain that stops leave it, however many they are."""


@dataclass(frozen=True)
class Plan:
    """When a link is drained and when it ends, in seconds from its start; None is never."""

    drain: float | None
    end: float
    """Our own certificate, which the daemon trusted at the handshake, runs out."""


def plan(now: datetime, *, theirs: Identity, ours: Identity, age: float, chance: float) -> Plan:
    """When to drain a link that began `now`.

    `theirs` and `ours` are the certificates of its ends, `age` is how long a link may last in
    seconds, zero for ever; `chance`, in [0, 1), keeps links that began together apart. One that
    begins with less than twice the lead left is not drained for it: the daemon has dialled with
    the newest it has, and would come back with the same.
    """
    due = [age * (1 - chance / 10)] if age else []
    for identity in (theirs, ours):
        left = (identity.not_after - now).total_seconds()
        life = (identity.not_after - identity.not_before).total_seconds()
        lead = min(LEAD, life * LEAD_SHARE)
        if left > 2 * lead:
            due.append(left - lead * (1 + chance))
    return Plan(min(due, default=None), max(0.0, (ours.not_after - now).total_seconds()))


def spread(links: int) -> float:
    """Seconds over which that many daemons are asked to leave."""
    return min(SPREAD_MAX, links / PER_SECOND)
