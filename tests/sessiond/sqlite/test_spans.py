"""Sessions whose events are in many chunks of the index read as if they were in one."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from sessiond.rows import SliceQuery
from sessiond.rules.removal import purge
from sessiond.sql import erasing, spans
from sessiond.sqlite.store import SqliteStore
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message, refused
from tests.sessiond.keeping import delete, fork, redact, sweep
from tests.sessiond.stores import OpenStore

NAMES = ("sesn_1", "sesn_2", "sesn_3")
EVENTS = 30
"""Of each session."""


@pytest.fixture
def open_store(tmp_path: Path) -> OpenStore:
    """These promises are this store's own."""
    return lambda clock: SqliteStore(tmp_path / "sessions.db", clock)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few events, and few looked up at once."""
    monkeypatch.setattr(spans, "CHUNK_EVENTS", 4)
    monkeypatch.setattr(spans, "_BATCH", 2)


@pytest.fixture
def filled(desk: Desk) -> Desk:
    """Sessions that take turns."""
    for name in NAMES:
        desk.create(name, message("0"))
    for n in range(1, EVENTS):
        for name in NAMES[: 1 + n % 3]:
            desk.append(name, message(str(n)))
    return desk


def spans_in(desk: Desk, name: str) -> list[tuple[int, int]]:
    store = desk.store
    assert isinstance(store, SqliteStore)
    number = desk.session(name).number
    return store._connection.execute(
        "SELECT first, chunk FROM spans WHERE session = $1 ORDER BY first", (number,)
    )


@pytest.mark.parametrize("newest_first", [False, True])
def test_every_slice_is_what_lies_between_its_bounds(filled: Desk, *, newest_first: bool) -> None:
    reader = filled.store.reader()
    for name in NAMES:
        row = filled.session(name)
        assert len(spans_in(filled, name)) > 5
        for low in range(row.head + 1):
            for high in range(low, row.head + 2):
                query = SliceQuery(low=low, high=high, newest_first=newest_first, limit=1000)
                found = [event.position for event in reader.slice(row, query).events]
                assert found == sorted(range(low + 1, high), reverse=newest_first)
    reader.close()


def test_a_chunk_is_full_after_so_many_events_and_is_not_gone_on_with_after_a_start(
    filled: Desk,
) -> None:
    used = [chunk for name in NAMES for _, chunk in spans_in(filled, name)]
    events = sum(filled.session(name).head for name in NAMES)
    assert len(set(used)) == max(used) == -(-events // 4)
    store = filled.store
    store.rollback()  # as after a start, nothing is known
    filled.append("sesn_1", message("x"))
    assert spans_in(filled, "sesn_1")[-1] == (filled.session("sesn_1").head, max(used) + 1)


def test_a_fork_shares_a_part_of_a_span(filled: Desk) -> None:
    for position in (1, 5, 6, 7, EVENTS):
        forked = fork(filled, "sesn_1", position, f"fork_{position}")
        filled.append(forked.session_id, message("own"))
        assert [event.position for event in filled.log(forked.session_id)] == [
            *range(1, position + 2)
        ]


def test_what_a_fork_shares_stays_and_all_else_goes_span_by_span(
    filled: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "PURGE_EVENTS", 5)
    before = filled.log("sesn_1")
    forked = fork(filled, "sesn_1", 7, "sesn_fork")
    redact(filled, "sesn_1", 9)
    number = filled.session("sesn_1").number
    delete(filled, "sesn_1")
    assert not filled.run(lambda tx: purge(tx, "sesn_1"))
    assert filled.log("sesn_fork") == before[:7]
    assert sweep(filled) >= 4
    assert filled.log("sesn_fork") == before[:7]
    store = filled.store
    assert isinstance(store, SqliteStore)
    rows = store._connection.execute(
        "SELECT count(*), max(position) FROM events WHERE session = $1", (number,)
    )
    assert rows == [(7, 7)]
    first = store._connection.execute("SELECT max(first) FROM spans WHERE session = $1", (number,))
    assert first[0][0] <= 7
    delete(filled, forked.session_id)
    sweep(filled)
    for table in ("events", "spans"):
        left = store._connection.execute(
            f"SELECT count(*) FROM {table} WHERE session = $1",
            (number,),
        )
        assert left == [(0,)]
    assert len(filled.log("sesn_2")) == filled.session("sesn_2").head


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM spans WHERE session = 1 AND first = 1",
        "DELETE FROM spans WHERE session = 1 AND first = (SELECT first FROM spans LIMIT 1, 1)",
        "DELETE FROM spans WHERE session = 1 AND first = (SELECT max(first) FROM spans)",
        "DELETE FROM spans WHERE session = 1",
        "UPDATE spans SET chunk = chunk + 1 WHERE session = 1 AND first = 1",
        "UPDATE spans SET first = 29 WHERE session = 1 AND first = (SELECT max(first) FROM spans)",
        "INSERT INTO spans VALUES (1, 9999, 1)",
    ],
)
def test_spans_that_are_not_what_they_were_are_refused_and_nothing_is_passed_over(
    filled: Desk, tmp_path: Path, edit: str
) -> None:
    store, before = filled.store, filled.log("sesn_1")
    assert isinstance(store, SqliteStore)
    guards = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'spans'"
    for (name,) in store._connection.execute(guards):
        store._connection.execute(f"DROP TRIGGER {name}")
    store._connection.execute(edit)
    reasons: list[str] = []
    for newest_first in (False, True):
        with closing(store.reader()) as reader:
            query = SliceQuery(newest_first=newest_first, limit=1000)
            try:
                found = reader.slice(filled.session("sesn_1"), query).events
            except CarpalError as error:
                reasons.append(error.reason)
            else:
                assert sorted(found, key=lambda event: event.position) == before
    assert set(reasons) <= {Reason.DATA_CORRUPT}
    with refused(Reason.DATA_CORRUPT) as refusal:
        as_after_a_kill(tmp_path)
    assert "the log of session sesn_1 is not where it is said to be" in str(refusal.value)


def test_tombstones_whose_events_went_in_part_are_whole_at_a_start(
    filled: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "PURGE_EVENTS", 5)
    shared = filled.log("sesn_1")[:3]
    fork(filled, "sesn_1", 3, "sesn_fork")
    filled.append("sesn_fork", message("own"))
    fork(filled, "sesn_fork", 4, "sesn_fork_of_fork")
    for name in ("sesn_1", "sesn_fork"):
        delete(filled, name)
    assert not filled.run(lambda tx: purge(tx, "sesn_1"))
    for _ in range(2):
        with closing(as_after_a_kill(tmp_path)) as store:
            assert Desk(store, filled.clock).log("sesn_fork_of_fork")[:3] == shared
        sweep(filled)


def as_after_a_kill(folder: Path) -> SqliteStore:
    """Another store, of what is on the disk."""
    killed = folder / "killed"
    shutil.rmtree(killed, ignore_errors=True)
    shutil.copytree(folder, killed, ignore=shutil.ignore_patterns("*-shm", "killed"))
    return SqliteStore(killed / "sessions.db", FakeClock())
