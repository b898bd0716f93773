"""Random requests against each store and against a model of a few lines: they must agree.

Requests run through the writer's own batching: several in a transaction, refused ones among them.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from carpal.errors import CarpalError
from carpal.identity import Identity
from carpal.v1 import session_pb2, types_pb2
from sessiond.rows import Group, NewEvent, SessionRow, SliceQuery
from sessiond.rules import forks, reads, redaction, removal, sessions
from sessiond.rules.append import append
from sessiond.rules.leases import Wanted
from sessiond.rules.runnable import Try
from sessiond.sql import spans
from sessiond.sqlite.store import SqliteStore
from sessiond.store import Store, Transaction
from tests.pace import times
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, BRAIN, OTHER, SELF, Desk, message
from tests.sessiond.keeping import chained, purges, sweep
from tests.sessiond.model import Answer, Entry, Model

MOST = 8
"""Sessions, forks among them."""
FreshStore = Callable[[FakeClock], Callable[[], Store]]
"""Makes an empty store; the answer opens it, again and again."""

picks = st.integers(0, MOST * 30)
brains = st.sampled_from([BRAIN, OTHER])
events = st.builds(
    NewEvent,
    st.sampled_from("abcdefgh"),
    st.sampled_from(["user.message", "agent.message"]),
    st.sampled_from([b"1", b"22"]),
)
slices = st.builds(
    session_pb2.GetEventsRequest,
    order=st.sampled_from([types_pb2.EVENT_ORDER_OLDEST_FIRST, types_pb2.EVENT_ORDER_NEWEST_FIRST]),
    types=st.sampled_from([[], ["user.message"], ["agent.*"], ["user.*", "session.error"], ["x"]]),
    limit=st.integers(0, 6),
)


def outcome(request: Callable[[], int]) -> Answer:
    """What it answers, or why it is refused."""
    try:
        return request()
    except CarpalError as error:
        return error.reason


class Agreement(RuleBasedStateMachine):
    """Queue requests, commit them together, compare answer by answer and then the state."""

    def __init__(self, fresh: FreshStore) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.reopen = fresh(self.clock)
        self.models = {session_id: Model(session_id) for session_id in ("s0", "s1")}
        self.queue: list[Callable[[Transaction], None]] = []
        self.open()
        for session_id, model in self.models.items():
            first = [message(id, b"1") for id in "abc"]
            self.desk.create(session_id, *first)
            model.log = [Entry(event) for event in first]

    def open(self) -> None:
        self.store = self.reopen()
        self.desk = Desk(self.store, self.clock)
        self.reader = self.store.reader()  # for as long as the store: it sees each commit

    def pick(self, number: int) -> tuple[str, Model]:
        return list(self.models.items())[number % len(self.models)]

    def ask(self, pick: int, both: Callable[[Transaction, str, Model], None]) -> None:
        """Queue a request about whichever session it then is; commit, or wait for the next."""
        self.queue.append(lambda tx: both(tx, *self.pick(pick)))
        if pick % 3:
            self.commit()

    @rule(
        pick=picks,
        who=brains,
        batch=st.lists(events, min_size=1, max_size=4),
        behind=st.sampled_from([None, None, 0, 0, 0, -1, 1]),
        wake=st.booleans(),
    )
    def append(
        self, pick: int, who: Identity, batch: list[NewEvent], behind: int | None, wake: bool
    ) -> None:
        def both(tx: Transaction, session_id: str, model: Model) -> None:
            epoch = None if behind is None else max(0, model.epoch - behind)
            group = Group(session_id, tuple(batch), epoch, wake)
            expected = model.append(who, group, self.now())
            assert outcome(lambda: append(tx, who, group).first.position) == expected

        self.ask(pick, both)

    @rule(pick=picks, who=brains, batch=st.lists(events, min_size=1, max_size=4))
    def drive(self, pick: int, who: Identity, batch: list[NewEvent]) -> None:
        """The way it goes when nothing is wrong."""
        self.acquire(pick, who)
        self.append(pick, who, batch, 0, True)
        self.release(pick, who, 0, 3)

    @rule(pick=picks, who=brains)
    def acquire(self, pick: int, who: Identity) -> None:
        def both(tx: Transaction, session_id: str, model: Model) -> None:
            expected = model.acquire(who, self.now())
            wanted, rules = Wanted(f"session/{session_id}"), self.desk.rules
            assert outcome(lambda: rules.acquire(tx, who, wanted).lease.epoch) == expected
            self.parked(tx, session_id)

        self.ask(pick, both)

    @rule(pick=picks, who=brains, behind=st.integers(0, 1))
    def renew(self, pick: int, who: Identity, behind: int) -> None:
        def both(tx: Transaction, session_id: str, model: Model) -> None:
            epoch = model.epoch - behind
            expected = model.renew(who, epoch, self.now())
            resource, rules = f"session/{session_id}", self.desk.rules
            assert outcome(lambda: rules.renew(tx, who, resource, epoch).epoch) == expected

        self.ask(pick, both)

    @rule(pick=picks, who=brains, behind=st.integers(0, 1), processed=st.integers(0, 10))
    def release(self, pick: int, who: Identity, behind: int, processed: int) -> None:
        def both(tx: Transaction, session_id: str, model: Model) -> None:
            epoch = model.epoch - behind
            expected = model.release(who, epoch, processed, self.now())

            def request() -> int:
                resource = f"session/{session_id}"
                self.desk.rules.release(tx, who, resource, epoch, Try(processed))
                return epoch

            assert outcome(request) == expected
            self.parked(tx, session_id)

        self.ask(pick, both)

    @rule(pick=picks, at=st.integers(0, 30))
    def fork(self, pick: int, at: int) -> None:
        def both(tx: Transaction, session_id: str, model: Model) -> None:
            if len(self.models) == MOST:
                return
            name = f"s{len(self.models)}"
            position = at % (len(model.log) + 2)
            made = model.fork(position, name)
            new = forks.NewFork(session_id, position, name, "", repr((session_id, at)).encode())
            answer = outcome(lambda: forks.fork(tx, ADA, new).head)
            if isinstance(made, Model):
                self.models[name] = made
                assert answer == position
            else:
                assert answer == made

        self.ask(pick, both)

    @rule(pick=picks, at=st.integers(0, 30))
    def redact(self, pick: int, at: int) -> None:
        def both(tx: Transaction, session_id: str, model: Model) -> None:
            position = at % (len(model.log) + 2)
            expected = model.redact(position)
            request = partial(redaction.redact, tx, ADA, session_id, position, "it was a secret")
            assert outcome(lambda: request().position) == expected

        self.ask(pick, both)

    @precondition(lambda self: len(self.models) > 2)
    @rule(pick=picks, how=st.sampled_from([sessions.archive, removal.delete]), sure=picks)
    def close(
        self,
        pick: int,
        how: Callable[[Transaction, Identity, str], SessionRow],
        sure: int,
    ) -> None:
        def both(tx: Transaction, session_id: str, model: Model) -> None:
            if sure % 3 == 0:  # or soon nothing else would be left
                end = model.archive if how is sessions.archive else model.delete
                expected = end(self.now())
                assert outcome(lambda: how(tx, ADA, session_id).head) == expected

        self.ask(pick, both)

    def parked(self, tx: Transaction, session_id: str) -> None:
        """A try that ended may have parked the session: two events, which nobody asked for."""
        session, log = tx.session(session_id), self.models[session_id].log
        assert session is not None
        assert session.head - len(log) in (0, 2)
        for position in range(len(log) + 1, session.head + 1):
            said = tx.event_at(session, position)
            assert said is not None
            assert said.source == SELF
            log.append(Entry(NewEvent(said.id, said.type, said.data)))

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
    def purge(self) -> None:
        self.commit()
        sweep(self.desk)
        assert not purges(self.desk)

    @rule()
    def restart(self) -> None:
        self.queue.clear()
        self.teardown()
        self.open()
        self.store.restart()
        for model in self.models.values():
            model.restarted(self.now())

    @rule(
        pick=picks,
        request=slices,
        anchor=st.sampled_from(["", "after", "before", "around"]),
        at=st.integers(0, 12),
        max_bytes=st.sampled_from([0, 1, 3]),
    )
    def slice(
        self,
        pick: int,
        request: session_pb2.GetEventsRequest,
        anchor: str,
        at: int,
        max_bytes: int,
    ) -> None:
        session_id, model = self.pick(pick)
        request.session_id = session_id
        if anchor:
            setattr(request, anchor, at)
        if anchor != "around":  # which side is cut short is its own affair
            request.max_bytes = max_bytes
        if not model.deleted:
            found = reads.slice_of(self.reader, ADA, request)
            positions = [event.position for event in found.events]
            assert (positions, found.more) == model.slice(request)
            assert found.head == len(model.log)

    @invariant()
    def agree(self) -> None:
        if self.queue:
            return  # nothing was committed since
        for session_id, model in self.models.items():
            with self.reader.snapshot():
                there = self.reader.session(session_id)
                assert (there is None) == model.deleted
                if there is None:
                    continue
                row, _ = there
                log = self.reader.slice(row, SliceQuery(limit=1000)).events
            assert [(e.id, e.type, e.data, e.redaction is not None) for e in log] == [
                (e.event.id, e.event.type, e.data, e.redacted) for e in model.log
            ]
            assert (row.head, row.wake, row.processed, row.archived is not None) == (
                len(model.log),
                model.wake,
                model.processed,
                model.archived,
            )
            assert row.hash == chained(log, model.chain_id)

    def now(self) -> int:
        return self.clock.steady()

    def teardown(self) -> None:
        self.reader.close()
        self.store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FreshStore:
    """Makes empty stores, one after the other, of each kind; the spans of SQLite's are short."""
    monkeypatch.setattr(spans, "CHUNK_EVENTS", 3)
    monkeypatch.setattr(spans, "_BATCH", 2)
    if request.param == "sqlite":

        def in_file(clock: FakeClock) -> Callable[[], Store]:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            return lambda: SqliteStore(folder / "s.db", clock)

        return in_file
    from sessiond.postgres.store import PostgresStore

    database = request.getfixturevalue("empty_database")

    def in_database(clock: FakeClock) -> Callable[[], Store]:
        url = database.emptied()
        return lambda: PostgresStore(url, clock)

    return in_database


@pytest.mark.timeout(120)
def test_a_store_answers_as_the_model_does_whatever_is_asked(fresh: FreshStore) -> None:
    run_state_machine_as_test(
        lambda: Agreement(fresh),  # type: ignore[arg-type] # whatever makes one will do
        settings=settings(
            max_examples=times(30, 1000),
            stateful_step_count=times(40, 80),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
