"""The rules of deletion: a tombstone at once, the bytes later. Pure.

A tombstone keeps the id, which is never used again, and what forks share. Everything
a person wrote about the session goes with it.
"""

from collections.abc import Sequence

import msgspec

from carpal.errors import refuse
from carpal.identity import Identity
from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.rows import LeaseState, Needs, SessionRow
from sessiond.rules import append
from sessiond.rules.retention import KIND, NAME, Retention
from sessiond.store import Transaction

IMPORT_PATIENCE = 24 * 3600 * SECOND
"""How long an import may stand still before it is given up."""


def needs_of(session_ids: Sequence[str], workspace: str) -> Needs:
    """What deleting these looks at; the workspace's rules do not change meanwhile."""
    return Needs(
        workspaces=(workspace,),
        sessions=tuple(session_ids),
        leases=tuple([f"session/{session_id}" for session_id in session_ids]),
    )


def delete(tx: Transaction, caller: Identity, session_id: str) -> SessionRow:
    """Delete a session that nobody drives and nothing holds; again, succeed again."""
    session = tx.session(session_id)
    if session is None or session.importing or not append.may_see(caller, session.workspace):
        raise append.not_found(session_id)
    if session.deleted is not None:
        return session
    lease = tx.lease(session.resource)
    if lease is not None and lease.live(tx.steady):
        raise refuse(
            Reason.LEASE_HELD,
            f"session {session_id!r} is driven by {lease.holder}",
            action="interrupt it first",
            session_id=session_id,
            holder=lease.holder,
        )
    if _retention(tx, session.workspace).hold:
        raise refuse(
            Reason.SESSION_HELD,
            f"workspace {session.workspace!r} holds its sessions",
            session_id=session_id,
        )
    return _bury(tx, session)


def delete_aged(tx: Transaction, session_ids: Sequence[str]) -> list[SessionRow]:
    """Delete those that are too old by their workspace's rules as they are now."""
    gone = []
    for session_id in session_ids:
        session = tx.session(session_id)
        if session is None or session.deleted is not None or session.importing or session.driven:
            continue
        oldest = _retention(tx, session.workspace).oldest(tx.wall)
        lease = tx.lease(session.resource)
        driven = lease is not None and lease.live(tx.steady)
        if oldest is not None and session.changed < oldest and not driven:
            gone.append(_bury(tx, session))
    return gone


def give_up_imports(tx: Transaction, session_ids: Sequence[str]) -> list[SessionRow]:
    """Remove what was imported in part, long ago; its id is free again once all is gone."""
    gone = []
    for session_id in session_ids:
        session = tx.session(session_id)
        if session is not None and session.deleted is None and stalled(session, tx.wall):
            gone.append(_bury(tx, session))
    return gone


def stalled(session: SessionRow, wall: int) -> bool:
    """Whether it is an import that nothing came of for too long."""
    return session.importing and session.changed < wall - IMPORT_PATIENCE


def purge(tx: Transaction, session_id: str) -> bool:
    """Remove some of a tombstone's bytes; whether none are left that may go."""
    session = tx.session(session_id)
    return session is None or session.deleted is None or tx.eraser.purge(session)


def _retention(tx: Transaction, workspace: str) -> Retention:
    rules = tx.documents.newest(workspace, KIND, NAME)
    return Retention() if rules is None else Retention.parse(rules.data)


def _bury(tx: Transaction, session: SessionRow) -> SessionRow:
    lease = tx.lease(session.resource)
    if lease is not None and lease.state is LeaseState.LIVE:
        # Past its expiry: nobody is there to settle any more.
        tx.put_lease(msgspec.structs.replace(lease, state=LeaseState.EXPIRED))
    tombstone = msgspec.structs.replace(
        session,
        title="",
        metadata={},
        labels={},
        deleted=tx.wall,
        wake_at=None,
        driven=False,
        not_before=None,
        parked="",
    )
    tx.put_session(tombstone)
    tx.eraser.begin_purge(tombstone)
    return tombstone
