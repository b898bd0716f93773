"""The rules on a real store, one transaction a call: no event loop, no server."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from carpal.errors import CarpalError
from carpal.identity import DEFAULT_TRUST_DOMAIN, Identity, Role
from carpal.status import Reason
from sessiond.rows import Changes, EventRow, Group, LeaseRow, NewEvent, SessionRow, SliceQuery
from sessiond.rules import sessions
from sessiond.rules.append import Appended, append
from sessiond.rules.leases import Held, Leases, Wanted
from sessiond.rules.runnable import Try
from sessiond.store import Store, Transaction
from tests.sessiond.clocks import FakeClock

T = TypeVar("T")
SELF = "spiffe://carpal.internal/sessiond/sessiond"


def identity(role: Role, name: str, workspace: str = "") -> Identity:
    """Someone whose certificate was checked."""
    now = datetime.now(UTC)
    return Identity(DEFAULT_TRUST_DOMAIN, role, name, workspace, "", now, now + timedelta(1), 1)


BRAIN = identity(Role.BRAIN, "brain-1")
OTHER = identity(Role.BRAIN, "brain-2")
ADA = identity(Role.OPERATOR, "ada", "default")
EVE = identity(Role.OPERATOR, "eve", "elsewhere")
VAULT = identity(Role.VAULT, "vault")


def message(id: str, data: bytes = b"{}") -> NewEvent:
    """What a person says: may come without an epoch."""
    return NewEvent(id, "user.message", data)


def reply(id: str, data: bytes = b"{}") -> NewEvent:
    """What a driver appends: needs the epoch."""
    return NewEvent(id, "agent.message", data)


class Desk:
    """Requests, one after the other."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.rules = Leases(SELF, uniform=lambda low, high: high)  # the longest backoff
        self.changes = Changes()

    def run(self, job: Callable[[Transaction], T]) -> T:
        """Commit one job; a refusal must not have written."""
        tx = self.store.begin()
        try:
            result = job(tx)
        except CarpalError:
            assert tx.writes == 0, "refused after it wrote"
            self.store.rollback()
            raise
        self.changes = self.store.commit()
        return result

    def create(
        self,
        session_id: str = "sesn_1",
        *events: NewEvent,
        who: Identity = ADA,
        wake: bool = False,
        workspace: str = "default",
    ) -> SessionRow:
        """A new session."""
        request = repr((session_id, events, wake, workspace)).encode()
        new = sessions.NewSession(session_id, workspace, "", {}, {}, events, wake, request)
        return self.run(lambda tx: sessions.create(tx, who, new))

    def append(
        self,
        session_id: str,
        *events: NewEvent,
        who: Identity = BRAIN,
        epoch: int | None = None,
        wake: bool = False,
    ) -> Appended:
        """One group."""
        return self.run(lambda tx: append(tx, who, Group(session_id, events, epoch, wake)))

    def acquire(
        self,
        resource: str,
        *,
        who: Identity = BRAIN,
        term: int = 0,
        takeover: bool = False,
        workspace: str = "",
    ) -> Held:
        """A lease."""
        wanted = Wanted(resource, f"{who.name}:1", term, takeover, workspace)
        return self.run(lambda tx: self.rules.acquire(tx, who, wanted))

    def renew(self, resource: str, epoch: int, *, who: Identity = BRAIN) -> LeaseRow:
        """One more term."""
        return self.run(lambda tx: self.rules.renew(tx, who, resource, epoch))

    def release(
        self,
        resource: str,
        epoch: int,
        processed: int = 0,
        *,
        who: Identity = BRAIN,
        failure: str = "",
        wake_at: int | None = None,
    ) -> SessionRow | None:
        """Give it up."""
        end = Try(processed, wake_at, failure)
        return self.run(lambda tx: self.rules.release(tx, who, resource, epoch, end))

    def expire(self) -> None:
        """What the timer does."""
        self.run(self.rules.expire)

    def session(self, session_id: str = "sesn_1") -> SessionRow:
        """As it is on disk."""
        reader = self.store.reader()
        try:
            found = reader.session(session_id)
        finally:
            reader.close()
        assert found is not None
        return found[0]

    def log(self, session_id: str = "sesn_1") -> list[EventRow]:
        """All its events, as they are on disk."""
        reader = self.store.reader()
        try:
            found = reader.session(session_id)
            assert found is not None
            return reader.slice(found[0], SliceQuery(limit=100_000, max_bytes=2**40)).events
        finally:
            reader.close()


def refused(reason: Reason) -> "pytest.RaisesExc[CarpalError]":
    """The block must raise this refusal."""
    return pytest.raises(CarpalError, check=lambda error: error.reason is reason)
