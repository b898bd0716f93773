"""The rules of importing: a log taken in as it was, link by link of its chain. Pure.

Until its head is reached the session counts as not there. A stream that broke leaves
what came by then; the same import again goes on from it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from carpal.chain import data_digest, event_hash, genesis
from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity
from carpal.ids import check_id
from carpal.status import Reason
from sessiond.rows import EventRow, NewEvent, SessionRow
from sessiond.rules import append, sessions
from sessiond.rules.redaction import REASON_BYTES
from sessiond.store import Transaction

HASH_BYTES = 32
SOURCE_BYTES = 512
_LAST_POSITION = 2**53


class NewImport(NamedTuple):
    """What an importer asks for."""

    session_id: str
    workspace: str
    title: str
    metadata: dict[str, str]
    labels: dict[str, str]
    created: int
    chain_id: str
    head: int
    hash: bytes
    """Of the event at the head."""
    request: bytes
    """Digest of the chain: its id and its head."""


def begin(tx: Transaction, caller: Identity, new: NewImport) -> SessionRow:
    """The session to import into: a new one, or the one that an earlier stream began."""
    _check(new)
    there = tx.session(new.session_id)
    if there is None:
        return _ended(
            tx,
            new,
            tx.add_session(
                SessionRow(
                    session_id=new.session_id,
                    workspace=new.workspace,
                    title=new.title,
                    metadata=new.metadata,
                    labels=new.labels,
                    request=new.request,
                    created=new.created,
                    chain_id=new.chain_id,
                    importing=True,
                    hash=genesis(new.chain_id),
                    changed=tx.wall,
                )
            ),
        )
    if there.deleted is not None and there.importing:
        raise refuse(
            Reason.UNAVAILABLE, f"an import of {new.session_id!r} is being given up: try again"
        )
    if not there.importing and _has(tx, there, new) and append.may_see(caller, there.workspace):
        return there  # nothing to do, whether it was imported or grew here
    if there.workspace != new.workspace:
        raise sessions.id_reused(new.session_id, "exists with other content")
    return sessions.same(there, caller, new.request)


def take(tx: Transaction, new: NewImport, events: Sequence[EventRow]) -> SessionRow:
    """Append the next events; what is there already is compared and skipped."""
    session = tx.session(new.session_id)
    other = session is None or (session.importing and session.request != new.request)
    if other or session is None or session.deleted is not None:
        raise refuse(Reason.UNAVAILABLE, f"session {new.session_id!r} went meanwhile: begin again")
    rest = _continuing(tx, session, new, events)
    if not rest:
        return session
    for event in rest:
        tx.eraser.keep_redaction(session, event)
    tx.add_events(session, rest)
    last = rest[-1]
    session = msgspec.structs.replace(session, head=last.position, hash=last.hash, changed=tx.wall)
    return _ended(tx, new, session)


def _has(tx: Transaction, there: SessionRow, new: NewImport) -> bool:
    """Whether a session's log is the one that is to be imported, or begins with it."""
    if there.deleted is not None or (there.workspace, there.chain_id) != (
        new.workspace,
        new.chain_id,
    ):
        return False
    if there.head == new.head:
        return there.hash == new.hash
    at = tx.event_at(there, new.head) if 0 < new.head < there.head else None
    return at is not None and at.hash == new.hash


def _continuing(
    tx: Transaction, session: SessionRow, new: NewImport, events: Sequence[EventRow]
) -> list[EventRow]:
    """Those of the events that are not there yet; CHAIN_BROKEN when they do not continue it.

    Of those that are there, it is enough to compare the last: its hash covers the others.
    """
    rest: list[EventRow] = []
    ids: set[str] = set()
    position = events[0].position - 1 if events else 0
    if position > session.head:
        raise _broken(session.head + 1, f"position {position + 1} is there in its place")
    previous = session.hash if position == session.head else None
    for event in events:
        _check_event(event)
        position += 1
        if event.position != position or position < 1:
            raise _broken(position, f"position {event.position} is there in its place")
        if position > new.head:
            raise _broken(position, f"the log ends at {new.head}, by its head")
        _check_link(previous, event)
        previous = event.hash
        if position == session.head and event.hash != session.hash:
            raise _broken(position, "another event is there already")
        if position == new.head and event.hash != new.hash:
            raise _broken(position, "it is not the head that the session is said to have")
        if position > session.head:
            if event.id in ids or tx.find_event(session, event.id) is not None:
                raise _broken(position, f"its id, {event.id!r}, is that of an event before")
            ids.add(event.id)
            rest.append(event)
    if 0 < position < session.head:
        stored = tx.event_at(session, position)
        if stored is None or stored.hash != previous:
            raise _broken(position, "another event is there already")
    return rest


def check_whole(session: SessionRow, new: NewImport) -> None:
    """CHAIN_BROKEN when the stream ended before the log did."""
    if session.importing:
        raise _broken(session.head + 1, f"nothing follows, and the log's head is at {new.head}")


def _ended(tx: Transaction, new: NewImport, session: SessionRow) -> SessionRow:
    """The session with what was added: there from now on if that was the last of it."""
    if session.head == new.head:
        session = msgspec.structs.replace(
            session, importing=False, imported_to=session.head, processed=session.head
        )
    tx.put_session(session)
    return session


def _check(new: NewImport) -> None:
    check_id(new.session_id, "session.session_id")
    check_id(new.chain_id, "session.chain_id")
    sessions.check_title(new.title)
    sessions.check_map("metadata", new.metadata)
    sessions.check_map("labels", new.labels)
    if new.head > _LAST_POSITION or len(new.hash) != HASH_BYTES:
        raise invalid("session.head", "must be the position and the hash of the log's last event")
    if new.head == 0 and new.hash != genesis(new.chain_id):
        raise _broken(0, "it is not the head that the session is said to have")


def _check_event(event: EventRow) -> None:
    """What an appended event has to be, an imported one has to be too."""
    append.check_events([NewEvent(event.id, event.type, event.data)])
    if not 1 <= len(event.source.encode()) <= SOURCE_BYTES:
        raise invalid("events.source", f"must be 1 to {SOURCE_BYTES} bytes")
    for name, value in (("data_digest", event.digest), ("hash", event.hash)):
        if len(value) != HASH_BYTES:
            raise invalid(f"events.{name}", f"must be {HASH_BYTES} bytes")
    if event.redaction is not None:
        if len(event.redaction.reason.encode()) > REASON_BYTES:
            raise invalid("events.redaction.reason", f"must be at most {REASON_BYTES} bytes")
        if len(event.redaction.by.encode()) > SOURCE_BYTES:
            raise invalid("events.redaction.by", f"must be at most {SOURCE_BYTES} bytes")


def _check_link(previous: bytes | None, event: EventRow) -> None:
    """CHAIN_BROKEN when the event is not what was hashed; without `previous`, only its data."""
    if event.redaction is not None:
        if event.data:
            raise _broken(event.position, "it is redacted, and yet has data")
    elif data_digest(event.data) != event.digest:
        raise _broken(event.position, "its data is not what was appended")
    if previous is not None and event.hash != event_hash(
        previous,
        id=event.id,
        position=event.position,
        time_ns=event.time,
        type=event.type,
        source=event.source,
        must_understand=event.must_understand,
        digest=event.digest,
    ):
        raise _broken(event.position, "its hash does not follow from it and the event before")


def _broken(position: int, why: str) -> CarpalError:
    return refuse(
        Reason.CHAIN_BROKEN,
        f"the chain breaks at position {position}: {why}",
        position=str(position),
    )
