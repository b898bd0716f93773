"""The rules of the one lease table: acquire, renew, release, expire. Pure.

A lease that is not live can do nothing: from the instant it expires, renewing
and releasing it are refused as they are once another holds it.
"""

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from carpal.errors import invalid, refuse
from carpal.identity import Identity
from carpal.ids import check_id, check_name
from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.rows import LeaseRow, LeaseState, SessionRow
from sessiond.rules import append
from sessiond.rules.runnable import Try, parking_events, settle
from sessiond.store import Transaction

TERM_DEFAULT = 10 * SECOND
TERM_MIN = SECOND // 2
TERM_MAX = 60 * SECOND
ADDRESS_BYTES = 256
GENERATION_SHIFT = 32
"""An epoch is the generation of its log in the high bits, and a count in the low ones."""
KINDS = ("session", "brain", "daemon")


class Wanted(NamedTuple):
    """What an acquirer asks for."""

    resource: str
    address: str = ""
    term: int = 0
    """Nanoseconds; 0 means the default."""
    takeover: bool = False
    workspace: str = ""
    attributes: dict[str, str] = {}  # noqa: RUF012 - never changed


class Held(NamedTuple):
    """A lease, and for `session/…` the session as of the same transaction."""

    lease: LeaseRow
    session: SessionRow | None


def parse(resource: str) -> tuple[str, str]:
    """Kind and name of a resource; INVALID_FIELD when it is neither."""
    kind, slash, name = resource.partition("/")
    if not slash or kind not in KINDS:
        raise invalid("resource", "must be session/<id>, brain/<name> or daemon/<name>")
    if kind == "session":
        return kind, check_id(name, "resource")
    return kind, check_name(name, "resource")


class Leases:
    """The rules, with what they need of the process: its own name, and chance."""

    def __init__(
        self, source: str, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._source = source
        """SPIFFE URI under which a parked session's events are appended."""
        self._uniform = uniform

    def acquire(self, tx: Transaction, caller: Identity, wanted: Wanted) -> Held:
        """Grant the lease under a higher epoch, which fences whoever had it."""
        kind, name = parse(wanted.resource)
        term = wanted.term or TERM_DEFAULT
        if not TERM_MIN <= term <= TERM_MAX:
            raise invalid("term", "must be 0.5 s to 60 s")
        if len(wanted.address.encode()) > ADDRESS_BYTES:
            raise invalid("address", f"must be at most {ADDRESS_BYTES} bytes")
        if "\0" in wanted.address:
            raise invalid("address", "must hold no NUL")
        session: SessionRow | None = None
        workspace = ""
        if kind == "session":
            session = append.find(tx, caller, name)
            append.check_open(session)
            workspace = session.workspace
        elif kind == "daemon":
            workspace = check_name(wanted.workspace, "workspace")
        if (kind == "session" and wanted.takeover) or (kind == "brain" and name != caller.name):
            raise refuse(
                Reason.TAKEOVER_NOT_ALLOWED,
                f"{wanted.resource} may not be taken from its holder by {caller.uri}",
                resource=wanted.resource,
            )
        before = tx.lease(wanted.resource)
        _check_free(before, caller, wanted, tx.steady)
        if before is not None and before.state is LeaseState.LIVE and session is not None:
            # Its holder died and came back, or expiry was not recorded yet: a try ended.
            session = self._ended(tx, session, _lost(before, "it was taken again", tx.steady))
        lease = LeaseRow(
            resource=wanted.resource,
            epoch=max(before.epoch if before else 0, tx.generation() << GENERATION_SHIFT) + 1,
            holder=caller.uri,
            address=wanted.address,
            workspace=workspace,
            attributes=dict(wanted.attributes),
            term=term,
            expires=tx.steady + term,
        )
        tx.put_lease(lease)
        if session is not None:
            session = msgspec.structs.replace(session, driven=True, progressed=False)
            tx.put_session(session)
        return Held(lease, session)

    def renew(self, tx: Transaction, caller: Identity, resource: str, epoch: int) -> LeaseRow:
        """One term from now."""
        lease = _held(tx, caller, resource, epoch)
        if not lease.live(tx.steady):
            raise append.stale(resource, epoch, "has ended: it expired or was released")
        lease = msgspec.structs.replace(lease, expires=tx.steady + lease.term)
        tx.put_lease(lease)
        return lease

    def release(
        self,
        tx: Transaction,
        caller: Identity,
        resource: str,
        epoch: int,
        end: Try,
        *,
        attributes: Mapping[str, str] = MappingProxyType({}),
    ) -> SessionRow | None:
        """Give the lease up and settle the session; again, answer as the first time.

        `attributes` are added to the lease's.
        """
        kind, name = parse(resource)
        lease = _held(tx, caller, resource, epoch)
        session = append.find(tx, caller, name) if kind == "session" else None
        if lease.state is LeaseState.RELEASED:
            return session
        if not lease.live(tx.steady):
            raise append.stale(resource, epoch, "has expired")
        if session is not None and end.processed > session.head:
            raise invalid("processed", f"is beyond the log's head, {session.head}")
        said = {**lease.attributes, **attributes}
        tx.put_lease(msgspec.structs.replace(lease, state=LeaseState.RELEASED, attributes=said))
        return session and self._ended(tx, session, end)

    def expire(self, tx: Transaction, limit: int = 1000) -> bool:
        """End leases past their expiry, `limit` at a time; say whether there may be more."""
        due = tx.due_leases(limit)
        for lease in due:
            tx.put_lease(msgspec.structs.replace(lease, state=LeaseState.EXPIRED))
            kind, name = parse(lease.resource)
            session = tx.session(name) if kind == "session" else None
            if session is not None and session.deleted is None:
                self._ended(tx, session, _lost(lease, "", tx.steady))
        return len(due) == limit

    def _ended(self, tx: Transaction, session: SessionRow, end: Try) -> SessionRow:
        settled = settle(session, end, tx.wall, tx.steady, self._uniform)
        if settled.parked and not session.parked:
            return append.write(tx, settled, self._source, parking_events(settled, end)).session
        tx.put_session(settled)
        return settled


def _check_free(before: LeaseRow | None, caller: Identity, wanted: Wanted, steady: int) -> None:
    """Another's live lease is in the way; one's own is fenced."""
    if before is None or wanted.takeover or before.holder == caller.uri or not before.live(steady):
        return
    raise refuse(
        Reason.LEASE_HELD,
        f"{wanted.resource} is held by {before.holder}",
        resource=wanted.resource,
        holder=before.holder,
        address=before.address,
    )


def _held(tx: Transaction, caller: Identity, resource: str, epoch: int) -> LeaseRow:
    """The newest lease of the resource, when it was granted to this caller under this epoch."""
    lease = tx.lease(resource)
    if lease is None:
        raise append.stale(resource, epoch, "was never granted")
    if epoch != lease.epoch:
        raise append.stale(resource, epoch, f"is not the newest, which is {lease.epoch}")
    if lease.holder != caller.uri:
        raise append.stale(resource, epoch, f"was granted to {lease.holder}")
    return lease


def _lost(lease: LeaseRow, how: str, steady: int) -> Try:
    why = how if how and lease.live(steady) else "it expired"
    return Try(processed=0, lost=f"{lease.holder} lost its lease: {why}")
