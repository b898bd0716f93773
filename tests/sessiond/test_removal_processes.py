"""Two processes that remove what is to go from one PostgreSQL database, at the same moment."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from sessiond.postgres.store import PostgresStore
from sessiond.rows import Needs
from sessiond.rules import removal
from sessiond.store import Store
from tests.pace import SCALE
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message
from tests.sessiond.keeping import delete, fork, purges, redact, sweep
from tests.sessiond.stores import OpenStore

WAIT = 10.0 * SCALE
_WAITING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
def open_store(database: str) -> OpenStore:
    """Of PostgreSQL alone: only there several processes share a store."""
    return lambda clock: PostgresStore(database, clock)


@pytest.fixture
def second(open_store: OpenStore, store: Store, clock: FakeClock) -> Iterator[Desk]:
    """Another process on the same store."""
    with closing(open_store(clock)) as other:
        yield Desk(other, clock)


def events_left(desk: Desk, session_id: str) -> int:
    tx = desk.store.begin()
    session = tx.session(session_id)
    assert session is not None
    own = range(session.inherited + 1, session.head + 1)
    left = sum(tx.event_at(session, position) is not None for position in own)
    desk.store.rollback()
    return left


def until_it_waits(database: str, done: threading.Event) -> None:
    """Until somebody waits for a lock in the database, or is done without one."""
    deadline = time.monotonic() + WAIT
    with psycopg.connect(database, autocommit=True) as connection:
        while not done.wait(0.01) and not connection.execute(_WAITING).fetchall():
            assert time.monotonic() < deadline


@pytest.mark.parametrize("first", ["sesn_1", "f"])
def test_what_a_fork_lets_go_of_just_as_its_source_is_swept_goes_too(
    desk: Desk, second: Desk, database: str, first: str
) -> None:
    desk.create("sesn_1", *(message(id) for id in "abc"))
    fork(desk, "sesn_1", 2, "f")
    desk.append("f", message("x"))
    delete(desk, "sesn_1")
    delete(desk, "f")
    other = "f" if first == "sesn_1" else "sesn_1"
    tx = desk.store.begin([Needs(sessions=(first,))])
    while not removal.purge(tx, first):
        pass
    done = threading.Event()

    def sweep_the_other() -> None:
        while not second.run(lambda tx: removal.purge(tx, other)):
            pass
        done.set()

    thread = threading.Thread(target=sweep_the_other)
    thread.start()
    until_it_waits(database, done)
    desk.store.commit()
    assert done.wait(WAIT)
    thread.join()
    sweep(second)
    assert purges(desk) == []
    assert (events_left(desk, "sesn_1"), events_left(desk, "f")) == (0, 0)


def test_two_redactions_of_one_event_through_two_forks_are_one(desk: Desk, second: Desk) -> None:
    desk.create("sesn_1", message("a", b"secret"))
    fork(desk, "sesn_1", 1, "f")
    first = redact(desk, "sesn_1", 1, reason="one")
    assert redact(second, "f", 1, reason="two") == first
    assert second.log("f") == [first] == desk.log("sesn_1")


def test_a_session_deleted_by_one_process_takes_nothing_more_through_another(
    desk: Desk, second: Desk
) -> None:
    desk.create("sesn_1", message("a"))
    assert second.append("sesn_1", message("b")).session.head == 2
    assert delete(desk, "sesn_1").head == 2
    assert delete(second, "sesn_1").deleted is not None
    sweep(second)
    assert events_left(desk, "sesn_1") == 0
