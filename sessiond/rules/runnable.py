"""When a session may be driven, and what a try at driving it leaves behind. Pure.

Progress is: `processed` moved, or the driver appended an event of the model or of
a hand, which is of a type `agent.*` or `hand.*`, but for one that says that a hand
was asked for, or not had. How the drive ended makes no difference: a driver that is
lost may be one that its session kills. Two counts are kept apart. `attempts` counts
tries without progress and parks the session at three, since driving it again would
only burn money. `failures` counts drives in a row that failed or were lost, grows
the backoff also while there is progress, and parks at twenty: what gets a word of the
model and then dies, again and again, pays for each.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from carpal.ids import new_id
from carpal.layers import DRIVER_LOST, Layer, failure
from sessiond.clock import SECOND
from sessiond.rows import NewEvent, SessionRow

MAX_ATTEMPTS = 3
MAX_FAILURES = 20
"""Drives in a row that failed or were lost, whatever each of them got done."""
BACKOFF_FIRST = 1 * SECOND
BACKOFF_CAP = 60 * SECOND
REASON_CHARACTERS = 1000
"""Of a failure, kept when it parks: it becomes an event, which has to fit in a message."""


def due_in(session: SessionRow, wall: int, steady: int) -> int | None:
    """Nanoseconds until the session is runnable, ≤ 0 when it is; None: not before it changes."""
    if session.archived is not None or session.deleted is not None:
        return None
    if session.parked or session.driven:
        return None
    if session.wake > session.processed:
        wait = 0
    elif session.wake_at is not None:
        wait = session.wake_at - wall
    else:
        return None
    if session.not_before is not None:
        wait = max(wait, session.not_before - steady)
    return wait


class Try(NamedTuple):
    """How a driver's hold of a session ended."""

    processed: int
    """Up to where it says the work is done; what it was when it did not say."""
    wake_at: int | None = None
    failure: str = ""
    """Why it failed; empty when it did not say that it did."""
    lost: str = ""
    """How the lease was lost, when it was not released."""
    layer: str = ""
    cause: str = ""
    """Which layer failed, and why in one word; empty when it did not say."""


def settle(
    session: SessionRow, end: Try, wall: int, steady: int, uniform: Callable[[float, float], float]
) -> SessionRow:
    """The session once nobody drives it: counts, backoff, parked or not.

    A lost lease has no backoff: that it had to expire was delay enough. Nor is it
    a try when a driver says itself when to go on, as one does that only stops.
    """
    progress = session.progressed or end.processed > session.processed
    broke = bool(end.failure or end.lost)
    # A driver that failed or was lost has not used up the time it was woken at.
    keep = end.wake_at is None and broke
    settled = msgspec.structs.replace(
        session,
        driven=False,
        progressed=False,
        processed=max(session.processed, end.processed),
        wake_at=session.wake_at if keep else end.wake_at,
        attempts=0 if progress else session.attempts,
        failures=0 if progress and not broke else session.failures,
        not_before=None,
        parked="" if progress else session.parked,
    )
    due = due_in(settled, wall, steady)
    scheduled = end.wake_at is not None and not end.lost
    if due is None or due > 0 or (not broke and (progress or scheduled)):
        return settled
    attempts = settled.attempts + (not progress)
    # A lost one that did nothing is in the other count alone: its backoff was the lease's term.
    failures = settled.failures + (progress or not end.lost)
    parked = ""
    if attempts >= MAX_ATTEMPTS or failures >= MAX_FAILURES:
        last = end.failure or end.lost or "the driver gave up its lease and did nothing"
        # A store may hold no text with a NUL.
        last = last[:REASON_CHARACTERS].replace("\0", " ")
        tries = f"{attempts} tries without progress"
        if attempts < MAX_ATTEMPTS:
            tries = f"{failures} tries in a row did not come to their end"
        parked = f"{tries}; the last: {last}"
    return msgspec.structs.replace(
        settled,
        attempts=attempts,
        failures=failures,
        not_before=None if end.lost else steady + _backoff(failures, uniform),
        parked=parked,
    )


def parking_events(session: SessionRow, end: Try) -> tuple[NewEvent, NewEvent]:
    """What the log says when a session is parked; `end` is of its last try.

    Of a driver that was lost, or did nothing, all that is known is that it drove.
    """
    said = failure(Layer.HARNESS, DRIVER_LOST) if end.lost else {"layer": str(Layer.HARNESS)}
    if end.layer in list(Layer):
        said = {"layer": end.layer}
    if end.cause:
        said["cause"] = end.cause
    did = session.attempts < MAX_ATTEMPTS
    error = {
        "error": {
            "type": "unknown_error",
            "message": session.parked,
            "retry_status": {"type": "exhausted"},
            **said,
        },
        "attempts": session.failures if did else session.attempts,
        "progress": did,
    }
    idle = {"stop_reason": {"type": "retries_exhausted"}}
    return (
        NewEvent(new_id("sevt"), "session.error", msgspec.json.encode(error)),
        NewEvent(new_id("sevt"), "session.status_idle", msgspec.json.encode(idle)),
    )


def _backoff(failures: int, uniform: Callable[[float, float], float]) -> int:
    """Nanoseconds: full jitter below a ceiling that doubles with each failure in a row."""
    ceiling = min(BACKOFF_CAP, BACKOFF_FIRST * 2 ** min(failures - 1, 16))
    return int(uniform(0.0, float(ceiling)))
