"""When a session may be driven, and what a try at driving it leaves behind. Pure.

Progress is: `processed` moved, or the driver appended an event of the model or of
a hand, which is of a type `agent.*` or `hand.*`. A driver that was lost after it
appended anything at all was cut off, and is no try either. Two counts are kept
apart. `attempts` counts tries without progress and parks the session
at three, since driving it again would only burn money. `failures` counts
failures in a row and grows the backoff, also while there is progress.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from carpal.ids import new_id
from sessiond.clock import SECOND
from sessiond.rows import NewEvent, SessionRow

MAX_ATTEMPTS = 3
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


def settle(
    session: SessionRow, end: Try, wall: int, steady: int, uniform: Callable[[float, float], float]
) -> SessionRow:
    """The session once nobody drives it: counts, backoff, parked or not.

    A lost lease has no backoff: that it had to expire was delay enough. Nor is it
    a try when a driver says itself when to go on, as one does that only stops.
    """
    cut_off = bool(end.lost) and session.appended
    progress = session.progressed or cut_off or end.processed > session.processed
    # A driver that failed or was lost has not used up the time it was woken at.
    keep = end.wake_at is None and bool(end.failure or end.lost)
    settled = msgspec.structs.replace(
        session,
        driven=False,
        progressed=False,
        appended=False,
        processed=max(session.processed, end.processed),
        wake_at=session.wake_at if keep else end.wake_at,
        attempts=0 if progress else session.attempts,
        failures=0 if progress and not end.failure else session.failures,
        not_before=None,
        parked="" if progress else session.parked,
    )
    due = due_in(settled, wall, steady)
    scheduled = end.wake_at is not None and not end.lost
    if due is None or due > 0 or (not end.failure and (progress or scheduled)):
        return settled
    attempts = settled.attempts + (not progress)
    failures = settled.failures + (not end.lost)
    parked = ""
    if attempts >= MAX_ATTEMPTS:
        last = end.failure or end.lost or "the driver gave up its lease and did nothing"
        # A store may hold no text with a NUL.
        last = last[:REASON_CHARACTERS].replace("\0", " ")
        parked = f"{attempts} tries without progress; the last: {last}"
    return msgspec.structs.replace(
        settled,
        attempts=attempts,
        failures=failures,
        not_before=None if end.lost else steady + _backoff(failures, uniform),
        parked=parked,
    )


def parking_events(session: SessionRow) -> tuple[NewEvent, NewEvent]:
    """What the log says when a session is parked."""
    error = {
        "error": {
            "type": "unknown_error",
            "message": session.parked,
            "retry_status": {"type": "exhausted"},
        }
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
