"""Forks of forks, appended to, redacted, deleted and swept at random, against a simple model.

The model copies lists and knows nothing of lineages: each session is its whole log.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sessiond.rules import removal
from sessiond.sql import erasing
from sessiond.sqlite.store import SqliteStore
from tests.pace import times
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message
from tests.sessiond.keeping import chained, delete, fork, purges, redact, sweep

picks = st.integers(0, 10**6)


@dataclass
class Model:
    """One session: its events by their numbers, whoever shares them."""

    chain_id: str
    log: list[int] = field(default_factory=list)
    deleted: bool = False


class Forks(RuleBasedStateMachine):
    """Every living session reads as the model says; every dead one's own bytes go."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.models: dict[str, Model] = {}
        self.redacted: set[int] = set()
        self.events = 0
        self.open()
        for name in ("s0", "s1"):
            self.desk.create(name)
            self.models[name] = Model(name)

    def open(self) -> None:
        self.store = SqliteStore(Path(self.folder.name) / "s.db", self.clock)
        self.desk = Desk(self.store, self.clock)

    def living(self, pick: int, *, with_events: bool = False) -> str | None:
        names = [
            name
            for name, model in self.models.items()
            if not model.deleted and (model.log or not with_events)
        ]
        return names[pick % len(names)] if names else None

    @rule(pick=picks, count=st.integers(1, 4))
    def append(self, pick: int, count: int) -> None:
        name = self.living(pick)
        if name is not None:
            new = range(self.events, self.events + count)
            self.events += count
            self.desk.append(name, *(message(f"e{n}", str(n).encode()) for n in new))
            self.models[name].log += new

    @rule(pick=picks, at=picks)
    def resend(self, pick: int, at: int) -> None:
        name = self.living(pick, with_events=True)
        if name is not None:
            log = self.models[name].log
            position = at % len(log) + 1
            n = log[position - 1]
            again = self.desk.append(name, message(f"e{n}", str(n).encode()), wake=True)
            assert again.first.position == position

    @precondition(lambda self: len(self.models) < 12)
    @rule(pick=picks, at=picks)
    def fork(self, pick: int, at: int) -> None:
        name = self.living(pick)
        if name is not None:
            source = self.models[name]
            position = at % (len(source.log) + 1)
            new = f"s{len(self.models)}"
            fork(self.desk, name, position, new)
            chain_id = source.chain_id if position else new
            self.models[new] = Model(chain_id, source.log[:position])

    @rule(pick=picks, at=picks)
    def redact(self, pick: int, at: int) -> None:
        name = self.living(pick, with_events=True)
        if name is not None:
            log = self.models[name].log
            position = at % len(log) + 1
            redact(self.desk, name, position)
            self.redacted.add(log[position - 1])

    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        name = self.living(pick)
        if name is not None:
            delete(self.desk, name)
            self.models[name].deleted = True

    @rule()
    def sweep_a_little(self) -> None:
        if waiting := purges(self.desk):
            self.desk.run(lambda tx: removal.purge(tx, waiting[0]))

    @rule()
    def sweep(self) -> None:
        sweep(self.desk)
        held = {event for model in self.models.values() if not model.deleted for event in model.log}
        for name, model in self.models.items():
            own = self.own(name)
            assert own <= held
            assert model.deleted or own <= set(model.log)

    def own(self, name: str) -> set[int]:
        """The events that the store holds under a session's own number."""
        tx = self.store.begin()
        session = tx.session(name)
        assert session is not None
        positions = range(session.inherited + 1, session.head + 1)
        found = [tx.event_at(session, position) for position in positions]
        self.store.rollback()
        return {int(event.id[1:]) for event in found if event is not None}

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    @invariant()
    def agree(self) -> None:
        for name, model in self.models.items():
            if model.deleted:
                continue
            log = self.desk.log(name)
            assert [int(event.id[1:]) for event in log] == model.log
            for event, n in zip(log, model.log, strict=True):
                assert event.data == (b"" if n in self.redacted else str(n).encode())
                assert (event.redaction is not None) == (n in self.redacted)
            assert self.desk.session(name).hash == chained(log, model.chain_id)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


class SmallSteps(Forks):
    """The same, with purges of two events at a time."""

    def __init__(self) -> None:
        self.before = erasing.PURGE_EVENTS
        erasing.PURGE_EVENTS = 2
        super().__init__()

    def teardown(self) -> None:
        erasing.PURGE_EVENTS = self.before
        super().teardown()


TestForks = SmallSteps.TestCase
TestForks.settings = settings(max_examples=times(40, 1000), stateful_step_count=30, deadline=None)
