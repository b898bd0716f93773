"""The rules of a session's own life: create, update, archive. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from carpal.chain import genesis
from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity, Role
from carpal.ids import check_id, check_name
from carpal.status import Reason
from sessiond.rows import NewEvent, SessionRow
from sessiond.rules import append
from sessiond.store import Transaction

TITLE_BYTES = 1024
MAP_BYTES = 4096
"""Keys and values of a metadata, label or attribute map, together."""


class NewSession(NamedTuple):
    """What a creator asks for."""

    session_id: str
    workspace: str
    title: str
    metadata: dict[str, str]
    labels: dict[str, str]
    events: tuple[NewEvent, ...]
    wake: bool
    request: bytes
    """Digest of all of the above."""


class Update(NamedTuple):
    """What an updater asks for."""

    session_id: str
    event_id: str
    title: str | None
    metadata: Mapping[str, str]
    labels: Mapping[str, str]
    data: bytes
    request: bytes
    """Digest of all the rest."""
    wake: bool = False


def own_workspace(caller: Identity, asked: str) -> str:
    """The workspace a caller means: an operator's own, or the one a brain must name."""
    if caller.role is not Role.OPERATOR:
        if not asked:
            raise invalid("workspace", f"a {caller.role} serves all and must name one")
        return check_name(asked, "workspace")
    if asked and asked != caller.workspace:
        raise invalid("workspace", f"must be your own, {caller.workspace!r}, or empty")
    return caller.workspace


def check_map(field: str, entries: Mapping[str, str]) -> None:
    """INVALID_FIELD when a map is too large or has an empty key."""
    if "" in entries:
        raise invalid(field, "a key is empty")
    if sum(len(k.encode()) + len(v.encode()) for k, v in entries.items()) > MAP_BYTES:
        raise invalid(field, f"must be at most {MAP_BYTES} bytes in all")
    if any("\0" in text for entry in entries.items() for text in entry):
        raise invalid(field, "must hold no NUL")


def _check_types(caller: Identity, events: tuple[NewEvent, ...]) -> None:
    """EPOCH_REQUIRED when an operator would write what only a driver may say."""
    for event in events:
        known = event.type == "session.updated" or append.is_inbox(event.type)
        if caller.role is Role.OPERATOR and not known:
            raise refuse(
                Reason.EPOCH_REQUIRED,
                f"an operator may not begin a session with {event.type!r}",
                action="begin with session.updated and inbox events",
            )


def create(tx: Transaction, caller: Identity, new: NewSession) -> SessionRow:
    """A new session with its first events; the same request again answers with the session."""
    check_id(new.session_id, "session_id")
    check_title(new.title)
    check_map("metadata", new.metadata)
    check_map("labels", new.labels)
    append.check_events(new.events)
    _check_types(caller, new.events)
    if new.wake and not new.events:
        raise invalid("wake", "needs an event that gives the session something to do")
    there = tx.session(new.session_id)
    if there is not None:
        return same(there, caller, new.request)
    session = tx.add_session(
        SessionRow(
            session_id=new.session_id,
            workspace=new.workspace,
            title=new.title,
            metadata=new.metadata,
            labels=new.labels,
            request=new.request,
            created=tx.wall,
            chain_id=new.session_id,
            hash=genesis(new.session_id),
            changed=tx.wall,
        )
    )
    if not new.events:
        return session
    return append.write(tx, session, caller.uri, new.events, wake=new.wake).session


def same(there: SessionRow, caller: Identity, request: bytes) -> SessionRow:
    """The session that this very request made before, or ID_REUSED."""
    if there.deleted is not None:
        raise id_reused(there.session_id, "was deleted, and an id is never used again")
    if there.request != request or not append.may_see(caller, there.workspace):
        raise id_reused(there.session_id, "exists with other content")
    return there


def id_reused(session_id: str, why: str) -> CarpalError:
    """ID_REUSED, in words."""
    return refuse(Reason.ID_REUSED, f"session {session_id!r} {why}", session_id=session_id)


def update(tx: Transaction, caller: Identity, change: Update) -> SessionRow:
    """Change title, metadata or labels, and append `session.updated`."""
    event = NewEvent(change.event_id, "session.updated", change.data)
    append.check_events((event,))
    session = append.find(tx, caller, change.session_id)
    there = tx.find_event(session, change.event_id)
    if there is not None:
        if tx.update_request(session, change.event_id) != change.request:
            raise refuse(
                Reason.ID_REUSED,
                f"event {change.event_id!r} exists at position {there.position} "
                "and is not this change",
                event_id=change.event_id,
            )
        return session
    append.check_open(session)
    changed = msgspec.structs.replace(
        session,
        title=session.title if change.title is None else change.title,
        metadata=_patched(session.metadata, change.metadata),
        labels=_patched(session.labels, change.labels),
    )
    check_title(changed.title)
    check_map("metadata", changed.metadata)
    check_map("labels", changed.labels)
    tx.add_update_request(session, change.event_id, change.request)
    return append.write(tx, changed, caller.uri, (event,), wake=change.wake).session


def archive(tx: Transaction, caller: Identity, session_id: str) -> SessionRow:
    """Close a session that nobody drives; again, answer as the first time."""
    session = append.find(tx, caller, session_id)
    if session.archived is not None:
        return session
    lease = tx.lease(f"session/{session_id}")
    if lease is not None and lease.live(tx.steady):
        raise refuse(
            Reason.LEASE_HELD,
            f"session {session_id!r} is driven by {lease.holder}",
            action="interrupt it first",
            session_id=session_id,
            holder=lease.holder,
        )
    session = msgspec.structs.replace(session, archived=tx.wall)
    tx.put_session(session)
    return session


def check_title(title: str) -> None:
    """INVALID_FIELD when it is too long."""
    if len(title.encode()) > TITLE_BYTES:
        raise invalid("title", f"must be at most {TITLE_BYTES} bytes")
    if "\0" in title:
        raise invalid("title", "must hold no NUL")


def _patched(entries: Mapping[str, str], patch: Mapping[str, str]) -> dict[str, str]:
    """The map after a patch, in which an empty value removes its key."""
    return {key: value for key, value in {**entries, **patch}.items() if value}
