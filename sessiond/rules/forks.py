"""The rules of forking: a new session that shares a log up to a position. Pure.

Nothing is copied. A fork knows whose events it shares, up to where; a fork of a
fork knows each ancestor that contributes, so that reading never climbs.
"""

from typing import NamedTuple

from carpal.chain import genesis
from carpal.errors import refuse
from carpal.identity import Identity
from carpal.ids import check_id
from carpal.status import Reason
from sessiond.rows import SessionRow
from sessiond.rules import append, sessions
from sessiond.store import Transaction


class NewFork(NamedTuple):
    """What a forker asks for."""

    source_id: str
    position: int
    session_id: str
    title: str
    request: bytes
    """Digest of all of the above."""


def fork(tx: Transaction, caller: Identity, new: NewFork) -> SessionRow:
    """The fork; the same request again answers with it as it is by then.

    It is idle: what the source had left undone is its own until somebody wakes it.
    Metadata and labels are no part of a log, so they do not pass.
    """
    check_id(new.session_id, "session_id")
    check_id(new.source_id, "source_session_id")
    sessions.check_title(new.title)
    there = tx.session(new.session_id)
    if there is not None:
        return sessions.same(there, caller, new.request)
    source = append.find(tx, caller, new.source_id)
    if new.position > source.head:
        raise refuse(
            Reason.POSITION_BEYOND_HEAD,
            f"session {new.source_id!r} ends at position {source.head}, before {new.position}",
            session_id=new.source_id,
            head=str(source.head),
        )
    return tx.add_session(
        SessionRow(
            session_id=new.session_id,
            workspace=source.workspace,
            title=new.title,
            request=new.request,
            created=tx.wall,
            # A fork that shares nothing begins a chain of its own.
            chain_id=source.chain_id if new.position else new.session_id,
            forked_from=source.session_id,
            lineage=shared(source, new.position),
            imported_to=min(source.imported_to, new.position),
            head=new.position,
            hash=_hash(tx, source, new.position) if new.position else genesis(new.session_id),
            changed=tx.wall,
            processed=new.position,
        )
    )


def shared(source: SessionRow, position: int) -> tuple[tuple[int, int], ...]:
    """The lineage of a fork at a position: only those who contribute to it."""
    segments: list[tuple[int, int]] = []
    above = 0
    for number, upto in (*source.lineage, (source.number, position)):
        if position > above:
            segments.append((number, min(upto, position)))
        above = upto
    return tuple(segments)


def _hash(tx: Transaction, source: SessionRow, position: int) -> bytes:
    if position == source.head:
        return source.hash
    event = tx.event_at(source, position)
    assert event is not None, "a log has no gaps"
    return event.hash
