"""Random requests against the store and against a model of a few lines: they must agree.

The model keeps lists in memory and knows nothing of batches, caches or SQL. Requests run through
the writer's own batching: several in a transaction, refused ones among them.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from carpal.errors import CarpalError
from carpal.identity import Identity
from carpal.status import Reason
from sessiond.append import append, is_inbox
from sessiond.clock import SECOND
from sessiond.leases import Wanted
from sessiond.rows import Group, NewEvent
from sessiond.runnable import Try
from sessiond.sqlite import SqliteStore
from sessiond.store import Store, Transaction
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import BRAIN, OTHER, SELF, Desk
from tests.sessiond.test_append import verified

if TYPE_CHECKING:
    from tests.sessiond.stores import EmptyDatabase

SESSIONS = ("s1", "s2")
Answer = int | Reason

brains = st.sampled_from([BRAIN, OTHER])

events = st.builds(
    NewEvent,
    st.sampled_from("abcdefgh"),
    st.sampled_from(["user.message", "agent.message"]),
    st.sampled_from([b"1", b"2"]),
)


PARKING = NewEvent("", "", b"")


@dataclass
class Model:
    """What must be true of one session."""

    log: list[NewEvent] = field(default_factory=list)
    """PARKING where the store said itself that it parked the session."""
    epoch: int = 0
    holder: str = ""
    expires: int = 0
    released: bool = True
    wake: int = 0
    processed: int = 0

    def live(self, now: int) -> bool:
        return not self.released and now < self.expires

    def append(self, who: Identity, group: Group, now: int) -> Answer:
        if group.epoch is None:
            if not all(is_inbox(e.type) for e in group.events):
                return Reason.EPOCH_REQUIRED
        elif (group.epoch, who.uri) != (self.epoch, self.holder) or not self.live(now):
            return Reason.STALE_EPOCH
        log = list(self.log)
        for event in group.events:
            same = [e for e in log if e.id == event.id]
            if same and same != [event]:
                return Reason.ID_REUSED
            if not same:
                log.append(event)
        last = max(log.index(event) for event in group.events) + 1
        if group.wake and len(log) > len(self.log):
            self.wake = len(log)
        elif group.wake and last > max(self.wake, self.processed):
            self.wake = last
        self.log = log
        return 1 + [e.id for e in log].index(group.events[0].id)

    def acquire(self, who: Identity, now: int) -> Answer:
        if self.live(now) and self.holder != who.uri:
            return Reason.LEASE_HELD
        self.epoch += 1
        self.holder, self.expires, self.released = who.uri, now + 10 * SECOND, False
        return self.epoch

    def renew(self, who: Identity, epoch: int, now: int) -> Answer:
        if (epoch, who.uri) != (self.epoch, self.holder) or not self.live(now):
            return Reason.STALE_EPOCH
        self.expires = now + 10 * SECOND
        return epoch

    def release(self, who: Identity, epoch: int, processed: int, now: int) -> Answer:
        if (epoch, who.uri) != (self.epoch, self.holder):
            return Reason.STALE_EPOCH
        if not self.released and not self.live(now):
            return Reason.STALE_EPOCH
        if not self.released:
            if processed > len(self.log):
                return Reason.INVALID_FIELD
            self.processed = max(self.processed, processed)
        self.released = True
        return epoch


def outcome(request: Callable[[], int]) -> Answer:
    """What it answers, or why it is refused."""
    try:
        return request()
    except CarpalError as error:
        return error.reason


class Agreement(RuleBasedStateMachine):
    """Queue requests, commit them together, compare answer by answer and then the state."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.models = {session_id: Model() for session_id in SESSIONS}
        self.queue: list[Callable[[Transaction], None]] = []
        self.open()
        for session_id in SESSIONS:
            self.desk.create(session_id)

    def opened(self) -> Store:
        return SqliteStore(Path(self.folder.name) / "s.db", self.clock)

    def open(self) -> None:
        self.store = self.opened()
        self.desk = Desk(self.store, self.clock)

    @rule(
        session_id=st.sampled_from(SESSIONS),
        who=brains,
        batch=st.lists(events, min_size=1, max_size=4),
        behind=st.none() | st.integers(-1, 1),
        wake=st.booleans(),
    )
    def append(
        self,
        session_id: str,
        who: Identity,
        batch: list[NewEvent],
        behind: int | None,
        wake: bool,
    ) -> None:
        model = self.models[session_id]

        def both(tx: Transaction) -> None:
            epoch = None if behind is None else max(0, model.epoch - behind)
            group = Group(session_id, tuple(batch), epoch, wake)
            expected = model.append(who, group, self.now())
            assert outcome(lambda: append(tx, who, group).first.position) == expected

        self.queue.append(both)

    @rule(session_id=st.sampled_from(SESSIONS), who=brains)
    def acquire(self, session_id: str, who: Identity) -> None:
        wanted = Wanted(f"session/{session_id}")

        def both(tx: Transaction) -> None:
            expected = self.models[session_id].acquire(who, self.now())
            rules = self.desk.rules
            assert outcome(lambda: rules.acquire(tx, who, wanted).lease.epoch) == expected
            self.parked(tx, session_id)

        self.queue.append(both)

    @rule(session_id=st.sampled_from(SESSIONS), who=brains, behind=st.integers(0, 1))
    def renew(self, session_id: str, who: Identity, behind: int) -> None:
        model = self.models[session_id]

        def both(tx: Transaction) -> None:
            epoch = model.epoch - behind
            expected = model.renew(who, epoch, self.now())
            resource = f"session/{session_id}"
            rules = self.desk.rules
            assert outcome(lambda: rules.renew(tx, who, resource, epoch).epoch) == expected

        self.queue.append(both)

    @rule(
        session_id=st.sampled_from(SESSIONS),
        who=brains,
        behind=st.integers(0, 1),
        processed=st.integers(0, 10),
    )
    def release(self, session_id: str, who: Identity, behind: int, processed: int) -> None:
        model = self.models[session_id]

        def both(tx: Transaction) -> None:
            epoch = model.epoch - behind
            expected = model.release(who, epoch, processed, self.now())

            def request() -> int:
                resource = f"session/{session_id}"
                self.desk.rules.release(tx, who, resource, epoch, Try(processed))
                return epoch

            assert outcome(request) == expected
            self.parked(tx, session_id)

        self.queue.append(both)

    def parked(self, tx: Transaction, session_id: str) -> None:
        """A try that ended may have parked the session: two events, which nobody asked for."""
        session, log = tx.session(session_id), self.models[session_id].log
        assert session is not None
        assert session.head - len(log) in (0, 2)
        log += [PARKING] * (session.head - len(log))

    @rule()
    def commit(self) -> None:
        tx = self.store.begin()
        for both in self.queue:
            both(tx)
        self.queue.clear()
        self.store.commit()

    @rule(seconds=st.sampled_from([0.5, 4, 11]))
    def time_passes(self, seconds: float) -> None:
        self.commit()
        self.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.queue.clear()
        self.store.close()
        self.open()
        self.store.restart()
        for model in self.models.values():
            model.expires = self.now() + 10 * SECOND

    @invariant()
    def agree(self) -> None:
        for session_id, model in self.models.items():
            log = self.desk.log(session_id)
            assert [
                PARKING if e.source == SELF else NewEvent(e.id, e.type, e.data) for e in log
            ] == model.log
            assert [e.position for e in log] == list(range(1, len(log) + 1))
            row = self.desk.session(session_id)
            assert (row.head, row.wake, row.processed) == (
                len(model.log),
                model.wake,
                model.processed,
            )
            assert row.hash == verified(log, session_id)

    def now(self) -> int:
        return self.clock.steady()

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


class AgreementOnPostgres(Agreement):
    """The same of the other store."""

    database: ClassVar["EmptyDatabase"]

    def __init__(self) -> None:
        self.url = self.database.emptied()
        super().__init__()

    def opened(self) -> Store:
        from sessiond.postgres import PostgresStore

        return PostgresStore(self.url, self.clock)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_postgresql_agrees_with_the_model_as_well(empty_database: "EmptyDatabase") -> None:
    AgreementOnPostgres.database = empty_database
    run_state_machine_as_test(
        AgreementOnPostgres,
        settings=settings(max_examples=5, stateful_step_count=20, deadline=None),
    )
