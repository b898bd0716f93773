"""The rules of redaction: one event's data goes, for all who share it. Pure.

Its id, type, source, time, digest and hash stay, so the chain still verifies; so do
who erased it, when and why.
"""

from carpal.errors import invalid, refuse
from carpal.identity import Identity
from carpal.status import Reason
from sessiond.rows import EventRow, Redaction
from sessiond.rules import append
from sessiond.store import Transaction

REASON_BYTES = 1024


def redact(
    tx: Transaction, caller: Identity, session_id: str, position: int, reason: str
) -> EventRow:
    """The event without its data; of one redacted before, as it was then."""
    if not 1 <= len(reason.encode()) <= REASON_BYTES or not reason.strip():
        raise invalid("reason", f"must be given, in at most {REASON_BYTES} bytes")
    session = append.find(tx, caller, session_id)
    event = tx.event_at(session, position) if 1 <= position <= session.head else None
    if event is None:
        raise refuse(
            Reason.SESSION_NOT_FOUND,
            f"session {session_id!r} has no event at position {position}",
            session_id=session_id,
            head=str(session.head),
        )
    if event.redaction is not None:
        return event
    tx.put_session(session)  # as it is: whoever watches it has to look again
    return tx.eraser.redact(session, event, Redaction(caller.uri, tx.wall, reason))
