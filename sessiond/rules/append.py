"""The rules of appending: who may, what is refused, positions, the hash chain. Pure.

The order of checks is part of the contract: the epoch comes before duplicates,
so a driver that lost its lease learns it even from a resend. Everything is
checked before anything is written, so a refused group leaves no trace.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from carpal.chain import data_digest, event_hash
from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity, Role
from carpal.status import Reason
from sessiond.rows import EventRow, Group, Needs, NewEvent, SessionRow
from sessiond.store import Transaction

EVENT_BYTES = 1024 * 1024
GROUP_BYTES = 4 * 1024 * 1024
GROUP_EVENTS = 1000

_INBOX = frozenset(
    {"system.message", "hand.event", "hand.offered", "agent.thread_message_received"}
)
_ASKED_FOR = frozenset({"hand.provision_requested", "hand.provision_failed"})
_OF_BRAINS = frozenset({"hand.entered", "hand.left"})
"""Types that a brain may append without an epoch: it lets people into hands of sessions that
another drives, or nobody."""
_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*\Z")


class Appended(msgspec.Struct, frozen=True):
    """Where a group's first event is, of the first time it was appended."""

    first: EventRow
    session: SessionRow


def is_inbox(type: str) -> bool:
    """Whether an event of this type may come without an epoch."""
    return type.startswith("user.") or type in _INBOX


def is_progress(type: str) -> bool:
    """Whether a driver that appends an event of this type got somewhere.

    A note, an error, one more question to the model or one more try to have a hand is none: a
    drive that does no more than that before it fails would do it, and pay for it, again and again.
    """
    return type.startswith(("agent.", "hand.")) and type not in _ASKED_FOR


def find(tx: Transaction, caller: Identity, session_id: str) -> SessionRow:
    """The session, or SESSION_NOT_FOUND when there is none in the caller's workspace."""
    session = tx.session(session_id)
    if session is None or session.deleted is not None or session.importing:
        raise not_found(session_id)
    if not may_see(caller, session.workspace):
        raise not_found(session_id)
    return session


def may_see(caller: Identity, workspace: str) -> bool:
    """Operators see their own workspace; brains and the vault serve all."""
    return caller.role is not Role.OPERATOR or caller.workspace == workspace


def not_found(session_id: str) -> CarpalError:
    """The one answer for what does not exist and what the caller may not see."""
    return refuse(
        Reason.SESSION_NOT_FOUND, f"no session {session_id[:128]!r}", session_id=session_id
    )


def needs_of(groups: Sequence[Group]) -> Needs:
    """What appending these groups looks at."""
    return Needs(
        sessions=tuple([group.session_id for group in groups]),
        leases=tuple([f"session/{g.session_id}" for g in groups if g.epoch is not None]),
        events=tuple([event.id for group in groups for event in group.events]),
    )


def append(tx: Transaction, caller: Identity, group: Group) -> Appended:
    """Append a group; of events that are there already, answer as the first time."""
    check_events(group.events)
    session = find(tx, caller, group.session_id)
    if group.epoch is None:
        for event in group.events:
            by_brain = caller.role is Role.BRAIN and event.type in _OF_BRAINS
            if not is_inbox(event.type) and not by_brain:
                raise refuse(
                    Reason.EPOCH_REQUIRED,
                    f"an event of type {event.type!r} needs the epoch of the session's lease",
                    type=event.type,
                )
    else:
        _check_epoch(tx, caller, session, group.epoch)
    return write(
        tx, session, caller.uri, group.events, wake=group.wake, driving=group.epoch is not None
    )


def write(
    tx: Transaction,
    session: SessionRow,
    source: str,
    events: Sequence[NewEvent],
    *,
    wake: bool = False,
    driving: bool = False,
) -> Appended:
    """Append checked events as `source`; ids seen before, with the same content, are skipped."""
    first: EventRow | None = None
    last = 0
    rows: dict[str, EventRow] = {}
    head, chain, now = session.head, session.hash, tx.wall
    for event in events:
        digest = data_digest(event.data)
        row = rows.get(event.id) or tx.find_event(session, event.id)
        if row is not None:
            _check_same(row, event, digest)
            last = max(last, row.position)
        else:
            head += 1
            id, type, must_understand = event.id, event.type, event.must_understand
            chain = event_hash(
                chain,
                id=id,
                position=head,
                time_ns=now,
                type=type,
                source=source,
                must_understand=must_understand,
                digest=digest,
            )
            row = rows[id] = EventRow(
                id, head, now, type, source, must_understand, event.data, digest, chain
            )
        first = first or row
    if first is None:
        raise invalid("events", "at least one is needed")
    if not rows:
        return Appended(first, _wake_again(tx, session, last) if wake else session)
    check_open(session)
    session = msgspec.structs.replace(
        session,
        head=head,
        hash=chain,
        changed=now,
        progressed=session.progressed
        or (driving and any(is_progress(e.type) for e in rows.values())),
    )
    if wake:
        session = _woken(session, head)
    tx.add_events(session, rows.values())
    tx.put_session(session)
    return Appended(first, session)


def check_events(events: Sequence[NewEvent]) -> None:
    """Refuse what is malformed or too large, whatever the session's state."""
    if len(events) > GROUP_EVENTS:
        raise _group_too_large(f"{len(events)} events; at most {GROUP_EVENTS} go in a group")
    size = 0
    for event in events:
        # A character takes up to four bytes.
        if not 1 <= len(event.id) <= 32 and not 1 <= len(event.id.encode()) <= 128:
            raise invalid("event.id", "must be 1 to 128 bytes")
        if "\0" in event.id:
            raise invalid("event.id", "must hold no NUL")
        if not _is_type(event.type):
            raise invalid(
                "event.type", f"{event.type[:128]!r} must be like `user.message`, up to 128 bytes"
            )
        if len(event.data) > EVENT_BYTES:
            raise refuse(
                Reason.EVENT_TOO_LARGE,
                f"the data of event {event.id!r} has {len(event.data)} bytes; "
                f"the limit is {EVENT_BYTES}",
                event_id=event.id,
            )
        size += len(event.data)
    if size > GROUP_BYTES:
        raise _group_too_large(f"{size} bytes of data; at most {GROUP_BYTES} go in a group")


@lru_cache(maxsize=1024)
def _is_type(type: str) -> bool:
    return len(type) <= 128 and _TYPE.match(type) is not None


def check_open(session: SessionRow) -> None:
    """Refuse when the session takes no more events."""
    if session.archived is not None:
        raise refuse(
            Reason.SESSION_ARCHIVED,
            f"session {session.session_id!r} is archived",
            session_id=session.session_id,
        )


def stale(resource: str, epoch: int, why: str) -> CarpalError:
    """STALE_EPOCH, in words."""
    return refuse(
        Reason.STALE_EPOCH,
        f"epoch {epoch} of {resource} {why}",
        resource=resource,
        epoch=str(epoch),
    )


def _check_epoch(tx: Transaction, caller: Identity, session: SessionRow, epoch: int) -> None:
    resource = session.resource
    lease = tx.lease(resource)
    if lease is None:
        raise stale(resource, epoch, "was never granted")
    if epoch != lease.epoch:
        raise stale(resource, epoch, f"is not the newest, which is {lease.epoch}")
    if lease.holder != caller.uri:
        raise stale(resource, epoch, f"was granted to {lease.holder}")
    if not lease.live(tx.steady):
        raise stale(resource, epoch, "has ended: it expired or was released")


def _check_same(row: EventRow, event: NewEvent, digest: bytes) -> None:
    """An id names one content for ever; who sent it first does not matter."""
    if (row.type, row.must_understand, row.digest) != (event.type, event.must_understand, digest):
        raise refuse(
            Reason.ID_REUSED,
            f"event {event.id!r} exists at position {row.position} with other content",
            event_id=event.id,
        )


def _wake_again(tx: Transaction, session: SessionRow, position: int) -> SessionRow:
    """A group that is there already now comes with a wake: it counts, but only once."""
    if session.archived is not None or position <= max(session.wake, session.processed):
        return session
    session = _woken(session, position)
    tx.put_session(session)
    return session


def _woken(session: SessionRow, position: int) -> SessionRow:
    """The session with a wake at a position; a parked one gets another chance."""
    if not session.parked:
        return msgspec.structs.replace(session, wake=position)
    return msgspec.structs.replace(
        session, wake=position, parked="", attempts=0, failures=0, not_before=None
    )


def _group_too_large(problem: str) -> CarpalError:
    return refuse(Reason.GROUP_TOO_LARGE, f"the group has {problem}")
