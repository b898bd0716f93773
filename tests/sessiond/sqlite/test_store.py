"""The store on SQLite: it refuses on its own (invariants 1, 2, 5), and a slice costs the slice (7).

The database is also opened here by hand, as an administrator with a tool would.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from carpal.chain import data_digest
from carpal.status import Reason
from sessiond.rows import EventRow, Group, NewEvent, SliceQuery
from sessiond.rules.append import append
from sessiond.sql import reader as sql_reader
from sessiond.sql.events import checksum
from sessiond.sql.reader import SqlReader, slice_statement
from sessiond.sql.schema import VERSION
from sessiond.sql.spans import Span
from sessiond.sqlite import checkpoint as sqlite_checkpoint
from sessiond.sqlite.connection import SqliteConnection, open_raw
from sessiond.sqlite.file import PAGE_BYTES
from sessiond.sqlite.schema import APPLICATION_ID
from sessiond.sqlite.store import SqliteStore
from sessiond.store import StoreBroken, StoreFull
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, Desk, message, refused
from tests.sessiond.rules.test_append import verified
from tests.sessiond.stores import OpenStore

COLUMNS = (
    "chunk, session, position, id, time, type, source, must_understand, data, digest, hash, "
    "checksum"
)
INSERT = f"INSERT INTO events ({COLUMNS}) VALUES"
REPLACE = f"INSERT OR REPLACE INTO events ({COLUMNS}) VALUES"
EMPTY = "x'', x'', x'', 0"
BY_POSITION = "USING INDEX events_by_position (chunk=? AND session=? AND position>?"
REFUSED = r"never changed|never removed|next position|a span begins"


@pytest.fixture
def open_store(tmp_path: Path) -> OpenStore:
    """These promises are this store's own."""
    return lambda clock: SqliteStore(tmp_path / "sessions.db", clock)


@pytest.fixture
def tool(tmp_path: Path, desk: Desk) -> Iterator[sqlite3.Connection]:
    """Another hand on the file of a store with one session of three events."""
    desk.create("sesn_1", *(message(id) for id in "abc"))
    with closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as tool:
        yield tool


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE events SET data = x'00' WHERE position = 2",
        "UPDATE events SET position = 9 WHERE position = 3",
        "DELETE FROM events",
        f"{INSERT} (1, 1, 5, 'x', 0, 1, 1, 0, {EMPTY})",
        f"{INSERT} (1, 1, 3, 'x', 0, 1, 1, 0, {EMPTY})",
        f"{INSERT} (1, 1, 4, 'a', 0, 1, 1, 0, {EMPTY})",
        f"{REPLACE} (1, 1, 2, 'x', 0, 1, 1, 0, {EMPTY})",
        f"{REPLACE} (1, 1, 4, 'a', 0, 1, 1, 0, {EMPTY})",
        f"INSERT OR REPLACE INTO events (number, {COLUMNS}) "
        f"VALUES (1, 1, 1, 4, 'x', 0, 1, 1, 0, {EMPTY})",
        f"{REPLACE} (1, 2, 2, 'x', 0, 1, 1, 0, {EMPTY})",
        f"{INSERT} (9, 1, 4, 'x', 0, 1, 1, 0, {EMPTY})",
        "UPDATE spans SET first = 2",
        "DELETE FROM spans",
        "INSERT OR REPLACE INTO spans VALUES (1, 1, 9)",
        "INSERT INTO spans VALUES (1, 3, 9)",
        "INSERT INTO spans VALUES (1, 4, 1)",
    ],
)
def test_the_store_itself_refuses_to_change_remove_or_skip(
    desk: Desk, tool: sqlite3.Connection, edit: str
) -> None:
    before = desk.log()
    with pytest.raises(
        sqlite3.IntegrityError, match=r"never changed|never removed|next position|a span begins"
    ):
        tool.execute(edit)
    assert desk.log() == before


def test_an_empty_span_lets_no_other_be_replaced(desk: Desk, tool: sqlite3.Connection) -> None:
    before = desk.log()
    tool.execute("INSERT INTO spans VALUES (1, 4, 8)")  # as before the event at 4
    with pytest.raises(sqlite3.IntegrityError, match="a span begins"):
        tool.execute("INSERT OR REPLACE INTO spans VALUES (1, 1, 9)")
    assert desk.log() == before


def test_a_flipped_bit_is_never_read_as_if_it_were_written(
    desk: Desk, tool: sqlite3.Connection
) -> None:
    tool.execute("DROP TRIGGER events_are_not_changed")
    columns = COLUMNS.split(", ")[3:]
    true = tool.execute(f"SELECT {COLUMNS} FROM events WHERE position = 2").fetchone()[3:]
    for column, value in zip(columns, true, strict=True):
        wrong = {int: lambda v: v ^ 3, str: lambda v: v + "!", bytes: lambda v: b"?" + v[1:]}
        set_it = f"UPDATE events SET {column} = ? WHERE position = 2"
        tool.execute(set_it, (wrong[type(value)](value),))
        with refused(Reason.DATA_CORRUPT):
            desk.log()
        tool.execute(set_it, (value,))
    assert len(desk.log()) == 3


def test_a_careful_forgery_shows_in_the_chain(desk: Desk, tool: sqlite3.Connection) -> None:
    noted = desk.session().hash
    assert verified(desk.log(), "sesn_1") == noted
    true = desk.log()[1]
    forged = msgspec.structs.replace(true, data=b"forged", digest=data_digest(b"forged"))
    tool.execute("DROP TRIGGER events_are_not_changed")
    tool.execute(
        "UPDATE events SET data = ?, digest = ?, checksum = ? WHERE position = 2",
        (forged.data, forged.digest, checksum(forged)),
    )
    assert desk.log()[1].data == b"forged"
    with pytest.raises(AssertionError):
        verified(desk.log(), "sesn_1")


def test_a_second_opening_of_the_file_is_refused_while_the_first_lasts(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with closing(SqliteStore(path, FakeClock())):
        with refused(Reason.CONFIG_INVALID) as error:
            SqliteStore(path, FakeClock())
        assert "in use by another sessiond, or a restore" in str(error.value)
    SqliteStore(path, FakeClock()).close()


def test_a_file_of_a_newer_sessiond_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    SqliteStore(path, FakeClock()).close()
    with closing(open_raw(str(path))) as raw:
        raw.pragma("user_version", VERSION + 1)
    with refused(Reason.CONFIG_INVALID) as error:
        SqliteStore(path, FakeClock())
    assert "newer sessiond" in str(error.value)


def test_what_is_not_a_session_store_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_bytes(b"dear diary " * 500)
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as tool:
        tool.execute("CREATE TABLE diary (entry)")
    for path in (text, foreign):
        with refused(Reason.CONFIG_INVALID) as error:
            SqliteStore(path, FakeClock())
        assert "not a session store" in str(error.value)
    assert text.read_bytes() == b"dear diary " * 500


def test_the_file_is_for_its_owner_alone(store: SqliteStore, tmp_path: Path) -> None:
    assert (tmp_path / "sessions.db").stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as tool:
        assert tool.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert tool.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_everything_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create("sesn_1", *(message(str(n)) for n in range(500)), wake=True)
    desk.acquire("session/sesn_1")
    log, row = desk.log(), desk.session()
    store.close()
    store = SqliteStore(tmp_path / "s.db", clock)
    again = Desk(store, clock)
    assert again.log() == log
    assert again.session() == row
    again.append("sesn_1", message("next"))
    assert again.session().head == 501
    store.close()


def test_a_rolled_back_transaction_leaves_nothing_in_memory_either(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    desk.create("sesn_2")
    tx = desk.store.begin()
    append(tx, ADA, Group("sesn_1", (NewEvent("b", "user.new_type", b""),), None, True))
    desk.store.rollback()
    again = desk.append("sesn_1", NewEvent("b", "user.new_type", b""))
    assert again.first.position == 2
    assert [e.type for e in desk.log()] == ["user.message", "user.new_type"]


def test_a_full_disk_is_said_and_undone(desk: Desk, store: SqliteStore) -> None:
    desk.create("sesn_1", message("a"))
    raw = store._connection.raw
    raw.pragma("max_page_count", raw.pragma("page_count") + 2)
    with pytest.raises(StoreFull):
        desk.append("sesn_1", message("big", bytes(100_000)))
    store.rollback()
    assert [e.id for e in desk.log()] == ["a"]
    raw.pragma("max_page_count", 2**30)
    assert desk.append("sesn_1", message("big", bytes(100_000))).first.position == 2


def test_a_gap_in_the_making_breaks_the_store_rather_than_the_log(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    tx = desk.store.begin()
    session = tx.session("sesn_1")
    assert session is not None
    tx.add_events(session, [EventRow("x", 3, 0, "a.b", "s", False, b"", b"", b"")])
    with pytest.raises(StoreBroken, match="next position"):
        desk.store.commit()
    desk.store.rollback()
    assert [e.id for e in desk.log()] == ["a"]


def test_the_last_50_of_30_000_events_cost_50_rows_s04(desk: Desk, tmp_path: Path) -> None:
    for start in range(0, 30_000, 1000):
        events = (message(f"e{n}", b"x" * 100) for n in range(start, start + 1000))
        if start == 0:
            desk.create("sesn_1", *events)
        else:
            desk.append("sesn_1", *events)
    reader = desk.store.reader()
    assert isinstance(reader, SqlReader)
    steps = _steps(reader)
    last = reader.slice(desk.session(), SliceQuery(newest_first=True, limit=50))
    assert [e.position for e in last.events] == list(range(30_000, 29_950, -1))
    of_50 = steps[0]
    steps[0] = 0
    reader.slice(desk.session(), SliceQuery(limit=50))
    assert steps[0] <= of_50 * 1.1
    # An event of a type that is not asked for is a step on the index and is not read.
    steps[0] = 0
    rare = reader.slice(desk.session(), SliceQuery(types=("user.message",), low=29_000, limit=10))
    assert len(rare.events) == 10
    assert steps[0] <= of_50
    reader.close()


def test_a_slice_walks_one_index_whatever_is_asked(desk: Desk, store: SqliteStore) -> None:
    for types in (None, [1], [1, 2, 3]):
        for newest_first in (False, True):
            query = SliceQuery(newest_first=newest_first)
            statement, bindings = slice_statement(1, Span(1, 0, 9), query, types)
            statement = statement.replace("$", "?")
            plan = list(store._connection.raw.execute(f"EXPLAIN QUERY PLAN {statement}", bindings))
            assert len(plan) == 1
            assert "USING INDEX events_by_position (chunk=? AND session=? AND position>?" in str(
                plan[0]
            )


def test_a_slice_of_many_types_walks_the_same_index_and_looks_at_names_once(
    store: SqliteStore,
) -> None:
    query = SliceQuery(newest_first=True)
    statement, bindings = slice_statement(1, Span(1, 0, 9), query, ("user.*", "agent.message"))
    explain = f"EXPLAIN QUERY PLAN {statement.replace('$', '?')}"
    plan = [str(row) for row in store._connection.raw.execute(explain, bindings)]
    assert BY_POSITION in plan[0]
    assert "LIST SUBQUERY" in plan[1]
    assert not any("TEMP B-TREE" in step or "CORRELATED" in step for step in plan)


def test_a_page_of_sessions_and_the_work_at_a_start_walk_an_index(store: SqliteStore) -> None:
    work = store._connection.raw.execute(f"EXPLAIN QUERY PLAN {sql_reader._WITH_WORK}").fetchall()
    assert "sessions_with_work" in str(work[0])


def test_the_write_ahead_log_is_copied_back_and_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "RESET_PAGES", 300)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create()
    for n in range(60):
        desk.append("sesn_1", message(str(n), bytes(100_000)))
        store.maintain()
    assert (tmp_path / "s.db-wal").stat().st_size < 600 * (PAGE_BYTES + 24)
    assert len(desk.log()) == 60
    store.close()


def _steps(reader: SqlReader) -> list[int]:
    """Counts instructions of SQLite's machine, in hundreds, from now on."""
    steps = [0]

    def step() -> bool:
        steps[0] += 1
        return False

    connection = reader._connection
    assert isinstance(connection, SqliteConnection)
    connection.raw.set_progress_handler(step, 100)
    return steps
