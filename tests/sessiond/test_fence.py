"""After a restore nobody drives on, whichever store it was, and no epoch is granted twice."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.rules.leases import GENERATION_SHIFT
from sessiond.sql.fence import Fenced, fence
from sessiond.sqlite.store import SqliteStore
from sessiond.store import Store
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import BRAIN, OTHER, Desk, message, refused, reply

if TYPE_CHECKING:
    from tests.sessiond.stores import OpenStore

WALL = 1_800_000_000 * SECOND


class Before(NamedTuple):
    """Epochs granted before the restore."""

    live: int
    released: int


@pytest.fixture
def store(open_store: "OpenStore", clock: FakeClock) -> Store:
    """An empty store, which the test closes."""
    return open_store(clock)


@pytest.fixture
def before(desk: Desk) -> Before:
    """Two sessions with work, one driven and one released; a daemon's link."""
    desk.create("sesn_1", message("a"), wake=True)
    desk.create("sesn_2", message("b"), wake=True)
    live = desk.acquire("session/sesn_1").lease.epoch
    desk.append("sesn_1", reply("done"), epoch=live)
    released = desk.acquire("session/sesn_2").lease.epoch
    desk.release("session/sesn_2", released)
    desk.acquire("daemon/d1", workspace="default")
    return Before(live, released)


@pytest.fixture
def after(
    before: Before, store: Store, open_store: "OpenStore", clock: FakeClock
) -> Iterator[Desk]:
    """The rules on the fenced store."""
    done = fenced(store)
    assert (done.leases, done.sessions) == (2, 2)
    store.close()
    again = open_store(clock)
    yield Desk(again, clock)
    again.close()


def fenced(store: Store, at_least: int = 0) -> Fenced:
    return fence(store._connection, WALL, at_least)  # type: ignore[attr-defined]


def test_whatever_an_earlier_driver_sends_is_refused_and_so_is_its_retry(
    after: Desk, before: Before
) -> None:
    for _ in range(2):
        for epoch in (before.live, before.live + 1):  # the next may have been granted since
            with refused(Reason.STALE_EPOCH):
                after.append("sesn_1", reply("late"), epoch=epoch)
            with refused(Reason.STALE_EPOCH):
                after.append("sesn_1", reply("done"), epoch=epoch)  # is in the log
            with refused(Reason.STALE_EPOCH):
                after.renew("session/sesn_1", epoch)
            with refused(Reason.STALE_EPOCH):
                after.release("session/sesn_1", epoch)
        with refused(Reason.STALE_EPOCH):
            after.release("session/sesn_2", before.released)
        with refused(Reason.STALE_EPOCH):
            after.renew("daemon/d1", 1)


def test_sessions_with_work_are_runnable_and_their_next_epochs_are_of_a_new_generation(
    after: Desk,
) -> None:
    reader = after.store.reader()
    waiting = {row.session_id: row.driven for row in reader.with_work()}
    assert reader.live_leases() == []
    reader.close()
    assert waiting == {"sesn_1": False, "sesn_2": False}
    held = after.acquire("session/sesn_1", who=OTHER).lease
    never_held_before = after.acquire("brain/brain-1", who=BRAIN).lease
    generation = 1_800_000_000 - 1_735_689_600
    for lease in (held, never_held_before):
        assert lease.epoch == (generation << GENERATION_SHIFT) + 1
    assert after.append("sesn_1", reply("new"), who=OTHER, epoch=held.epoch).first.position == 3


def test_two_restores_never_have_one_generation(before: Before, store: Store) -> None:
    first, second = fenced(store).generation, fenced(store).generation
    assert second == first + 1
    assert fenced(store, at_least=second + 10).generation == second + 11
    store.close()


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)
@pytest.mark.parametrize("wall", [-SECOND, 0, 9_000_000_000 * SECOND])
def test_a_clock_that_tells_nothing_takes_the_next_generation(
    before: Before, store: Store, wall: int
) -> None:
    assert isinstance(store, SqliteStore)
    assert fence(store._connection, wall).generation == 1
    assert fence(store._connection, wall).generation == 2
    store._transaction.forget()
    desk = Desk(store, FakeClock())
    assert desk.acquire("session/sesn_1").lease.epoch == (2 << GENERATION_SHIFT) + 1
    store.close()
