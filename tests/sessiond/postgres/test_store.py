"""The store on PostgreSQL: it refuses on its own (invariants 1, 2, 5), knows its own database,
and goes by that database's clock.

The database is also opened here by hand, as an administrator with psql would.
"""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from carpal.status import Reason
from sessiond import store_url
from sessiond.postgres.connection import PostgresConnection
from sessiond.postgres.errors import store_error
from sessiond.postgres.store import PostgresStore
from sessiond.rows import Group, Needs, SliceQuery
from sessiond.rules.append import append
from sessiond.rules.leases import Wanted
from sessiond.sql.schema import VERSION
from sessiond.store import (
    StoreBroken,
    StoreConflict,
    StoreFull,
    StoreRejects,
    StoreUnavailable,
    Transaction,
)
from tests.pace import AT_ONCE
from tests.postgres import Cluster
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import BRAIN, OTHER, Desk, message, refused, reply
from tests.sessiond.stores import OpenStore

Tool = psycopg.Connection[Any]
COLUMNS = (
    "chunk, session, position, id, time, type, source, must_understand, data, digest, hash, "
    "checksum"
)
INSERT = f"INSERT INTO events ({COLUMNS}) VALUES"
EMPTY = "'', '', '', 0"
REFUSED = r"never changed|never removed|next position|a span begins"


@pytest.fixture
def open_store(database: str) -> OpenStore:
    """These promises are this store's own."""
    return lambda clock: PostgresStore(database, clock)


@pytest.fixture
def tool(database: str) -> Iterator[Tool]:
    """Another hand on the database."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE events SET data = '\\x00' WHERE position = 2",
        "UPDATE events SET data = NULL WHERE position = 2",
        "UPDATE events SET position = 9 WHERE position = 3",
        "DELETE FROM events",
        "TRUNCATE events",
        "TRUNCATE sessions, events",
        "DELETE FROM sessions",
        f"{INSERT} (0, 1, 5, 'x', 0, 1, 1, 0, {EMPTY})",
        f"{INSERT} (0, 1, 3, 'x', 0, 9, 1, 0, {EMPTY})",
        f"{INSERT} (0, 1, 4, 'x', 0, 1, 1, 0, {EMPTY}), (0, 1, 6, 'y', 0, 1, 1, 0, {EMPTY})",
        f"{INSERT} (0, 1, 4, 'x', 0, 1, 1, 0, {EMPTY}), (0, 1, 4, 'y', 0, 2, 1, 0, {EMPTY}), "
        f"(0, 1, 6, 'z', 0, 1, 1, 0, {EMPTY})",
        f"{INSERT} (0, 2, 2, 'x', 0, 1, 1, 0, {EMPTY})",
        f"{INSERT} (0, 1, 2, 'x', 0, 9, 1, 0, {EMPTY}) "
        "ON CONFLICT (chunk, session, position, type) DO UPDATE SET data = excluded.data",
        f"{INSERT} (9, 1, 4, 'x', 0, 1, 1, 0, {EMPTY})",
        "UPDATE spans SET first = 2",
        "DELETE FROM spans",
        "TRUNCATE spans",
        "INSERT INTO spans VALUES (1, 3, 9)",
        "INSERT INTO spans VALUES (1, 4, 0)",
    ],
)
def test_the_store_itself_refuses_to_change_remove_or_skip(
    desk: Desk, tool: Tool, edit: str
) -> None:
    desk.create("sesn_1", *(message(id) for id in "abc"))
    before = desk.log()
    with pytest.raises(
        psycopg.Error, match=r"never changed|never removed|next position|a span begins"
    ):
        tool.execute(edit.encode())
    assert desk.log() == before


def test_an_id_is_not_taken_twice_by_hand_either(desk: Desk, tool: Tool) -> None:
    desk.create("sesn_1", message("a"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        tool.execute(f"{INSERT} (0, 1, 2, 'a', 0, 1, 1, 0, {EMPTY})".encode())


def test_a_changed_event_is_never_read_as_if_it_were_written(desk: Desk, tool: Tool) -> None:
    desk.create("sesn_1", *(message(id) for id in "abc"))
    tool.execute("ALTER TABLE events DISABLE TRIGGER events_are_not_changed")
    try:
        tool.execute("UPDATE events SET data = '\\x3f' WHERE position = 2")
        with refused(Reason.DATA_CORRUPT):
            desk.log()
        # The whole batch shares what is loaded first: it is not to fail for one's sake.
        tx = desk.store.begin([Needs(sessions=("sesn_1",), events=("b", "new"))])
        with refused(Reason.DATA_CORRUPT):
            append(tx, BRAIN, Group("sesn_1", (message("b"),)))
        append(tx, BRAIN, Group("sesn_1", (message("new"),)))
        desk.store.commit()
    finally:
        tool.execute("ALTER TABLE events ENABLE TRIGGER events_are_not_changed")


def test_several_may_start_on_an_empty_database_at_once(postgres_url: str) -> None:
    ready = threading.Barrier(4)

    def start(_: int) -> None:
        ready.wait(AT_ONCE)
        PostgresStore(postgres_url).close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    with closing(PostgresStore(postgres_url, FakeClock())) as store:
        Desk(store, FakeClock()).create()


def test_a_database_that_is_anothers_is_left_alone(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as tool:
        tool.execute("CREATE TABLE diary (entry text)")
        with refused(Reason.CONFIG_INVALID) as error:
            PostgresStore(postgres_url)
        assert "is not a session store: it holds other tables: diary" in str(error.value)
        assert "postgres:" not in str(error.value)  # neither user nor password
        found = tool.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert found.fetchone() == (1,)


def test_a_database_of_a_newer_sessiond_is_not_opened(postgres_url: str) -> None:
    PostgresStore(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as tool:
        tool.execute("UPDATE meta SET value = %s WHERE key = 'version'", (VERSION + 1,))
    with refused(Reason.CONFIG_INVALID) as error:
        PostgresStore(postgres_url)
    assert "newer sessiond" in str(error.value)


def test_a_database_that_holds_no_unicode_is_refused(postgres: Cluster) -> None:
    postgres.execute(
        psycopg.sql.SQL(
            "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    )
    try:
        with refused(Reason.CONFIG_INVALID) as error:
            PostgresStore(postgres.conninfo.rpartition("/")[0] + "/latin")
        assert "ENCODING 'UTF8'" in str(error.value)
    finally:
        postgres.drop("latin")


def test_a_server_that_does_not_answer_is_named_without_the_password(postgres: Cluster) -> None:
    wrong = postgres.conninfo.replace(f":{postgres.port}/", ":9/")
    with refused(Reason.UNREACHABLE) as error:
        PostgresStore(wrong)
    assert "postgresql://127.0.0.1:9/postgres does not answer" in str(error.value)
    assert postgres.password not in str(error.value)


def test_a_wrong_password_is_called_that(postgres: Cluster) -> None:
    with refused(Reason.CONFIG_INVALID) as error:
        PostgresStore(postgres.conninfo.replace(postgres.password, "wr0ng9"))
    assert "check user and password" in str(error.value)
    assert "does not answer" not in str(error.value)
    assert "wr0ng9" not in str(error.value)


def test_leases_get_a_full_term_when_nobody_took_renewals_and_not_again_and_again(
    database: str, tool: Tool
) -> None:
    def expires_after_a_start() -> int:
        with closing(PostgresStore(database)) as store:
            store.restart()
        (expires,) = tool.execute("SELECT expires FROM leases").fetchone() or (0,)
        return int(expires)

    with closing(PostgresStore(database)) as store:
        desk = Desk(store, FakeClock())
        desk.create("sesn_1", message("a"), wake=True)
        granted = desk.acquire("session/sesn_1").lease.expires
    tool.execute("DELETE FROM meta WHERE key = 'extended'")
    assert expires_after_a_start() == granted, "it was granted just now: others may serve"
    tool.execute("UPDATE leases SET expires = 1")
    extended = expires_after_a_start()
    assert extended > granted, "nobody served"
    tool.execute("UPDATE leases SET expires = 1")
    assert expires_after_a_start() == 1, "a sessiond that starts again and again"
    tool.execute("UPDATE meta SET value = 5 WHERE key = 'incarnation'")
    assert expires_after_a_start() > extended, "the database itself was away"


def test_a_restored_database_is_fenced_unless_it_is_served(database: str) -> None:
    with closing(PostgresStore(database)) as serving:
        desk = Desk(serving, FakeClock())
        desk.create("sesn_1", message("a"), wake=True)
        epoch = desk.acquire("session/sesn_1").lease.epoch
        with closing(PostgresStore(database)) as second, refused(Reason.CONFIG_INVALID):
            second.fence(serving.clock.wall())
    with closing(PostgresStore(database)) as store:
        assert store.fence(store.clock.wall()).leases == 1
        desk = Desk(store, FakeClock())
        with refused(Reason.STALE_EPOCH):
            desk.append("sesn_1", reply("b"), epoch=epoch)
        assert desk.acquire("session/sesn_1", who=OTHER).lease.epoch > 2**32


def test_of_two_that_grant_the_first_lease_of_a_name_at_once_one_must_look_again(
    database: str, desk: Desk, clock: FakeClock
) -> None:
    with closing(PostgresStore(database, clock)) as other:
        mine, theirs = desk.store.begin(), other.begin()
        for tx, who in ((mine, BRAIN), (theirs, OTHER)):
            assert tx.lease("daemon/lab") is None
            desk.rules.acquire(tx, who, _wanted("daemon/lab"))
        desk.store.commit()
        with pytest.raises(StoreConflict):
            other.commit()
        other.rollback()
        with refused(Reason.LEASE_HELD):
            Desk(other, clock).acquire("daemon/lab", who=OTHER, workspace="default")


def _wanted(resource: str) -> Wanted:
    return Wanted(resource, workspace="default")


def test_two_that_create_one_session_at_once_agree_on_it(
    database: str, desk: Desk, clock: FakeClock
) -> None:
    with closing(PostgresStore(database, clock)) as other:
        with ThreadPoolExecutor(2) as pool:
            done = [
                pool.submit(_again_on_conflict, Desk(store, clock)) for store in (desk.store, other)
            ]
            assert {row.result(AT_ONCE).number for row in done} == {desk.session().number}
        assert [event.id for event in desk.log()] == ["a"]


def _again_on_conflict(desk: Desk) -> Any:
    """As the writer does."""
    for _ in range(3):
        try:
            return desk.create("sesn_1", message("a"))
        except StoreConflict:
            desk.store.rollback()
    raise AssertionError("conflicts do not end")


def test_a_session_that_another_process_appends_to_is_waited_for(
    database: str, desk: Desk, clock: FakeClock
) -> None:
    desk.create("sesn_1", message("a"))
    with closing(PostgresStore(database, clock)) as other, ThreadPoolExecutor(1) as pool:
        needs = [Needs(sessions=("sesn_1",))]
        tx = desk.store.begin(needs)
        begun = pool.submit(other.begin, needs)
        _append(tx, "b")
        assert not begun.done()
        desk.store.commit()
        _append(begun.result(AT_ONCE), "c")
        other.commit()
    assert [(e.position, e.id) for e in desk.log()] == [(1, "a"), (2, "b"), (3, "c")]


def _append(tx: Transaction, id: str) -> None:
    append(tx, BRAIN, Group("sesn_1", (message(id),)))


def test_a_reader_and_a_writer_that_lost_their_connections_make_new_ones(
    desk: Desk, tool: Tool
) -> None:
    desk.create("sesn_1", message("a"))
    reader = desk.store.reader()
    assert reader.session("sesn_1") is not None
    tool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with pytest.raises(StoreUnavailable):
        reader.session("sesn_1")
    assert reader.session("sesn_1") is not None
    with pytest.raises(StoreUnavailable):
        desk.append("sesn_1", message("b"))
    desk.store.rollback()
    desk.append("sesn_1", message("b"))
    assert [event.id for event in desk.log()] == ["a", "b"]


def test_a_connection_lost_inside_a_transaction_is_not_replaced_within_it(
    desk: Desk, tool: Tool
) -> None:
    desk.create("sesn_1", message("a"))
    tx = desk.store.begin()
    tool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            tx.session("sesn_1")
    desk.store.rollback()


def test_large_events_are_read_a_few_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.create("sesn_1")
    for n in range(50):
        desk.append("sesn_1", message(f"e{n}", bytes(1_000_000)))
    sizes: list[int] = []
    execute = PostgresConnection.execute

    def counted(self: PostgresConnection, statement: str, values: Any = ()) -> Any:
        rows = execute(self, statement, values)
        if statement.startswith("FETCH"):
            sizes.append(len(rows))
        return rows

    monkeypatch.setattr(PostgresConnection, "execute", counted)
    reader = desk.store.reader()
    found = reader.session("sesn_1")
    assert found is not None
    slice = reader.slice(found[0], SliceQuery(limit=1000, max_bytes=2**40))
    assert len(slice.events) == 50
    assert max(sizes) <= 3
    with reader.snapshot():
        few = reader.slice(found[0], SliceQuery(limit=1000, max_bytes=1_500_000))
        assert (len(few.events), few.more) == (1, True)
        assert reader.session("sesn_1") is not None


def test_what_a_transaction_took_too_long_over_is_undone(desk: Desk, tool: Tool) -> None:
    setting = tool.execute(
        "SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
    )
    assert setting.fetchone() == ("0",)  # the server's own default would let it hang for ever
    desk.store.begin()
    mine = desk.store._connection.execute(  # type: ignore[attr-defined]
        "SHOW idle_in_transaction_session_timeout"
    )
    assert mine == [("10s",)]
    desk.store.rollback()


def test_who_stands_still_in_a_transaction_is_put_out_of_it(desk: Desk, tool: Tool) -> None:
    connection = desk.store._connection  # type: ignore[attr-defined]
    connection.open().execute("SET idle_in_transaction_session_timeout = '200ms'")
    desk.store.begin([Needs(sessions=("sesn_1",))])
    # Statements travel together here, after which the database's timer must run as well.
    connection.execute_all([("SELECT 1", ()), ("SELECT 2", ())])
    pid = connection.open().info.backend_pid
    tool.execute(
        "DO $$ BEGIN FOR n IN 1..500 LOOP "
        f"EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid}); "
        "PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$"
    )
    left = tool.execute(f"SELECT state FROM pg_stat_activity WHERE pid = {pid}").fetchall()
    assert left == []
    desk.store.rollback()


def test_a_commit_that_did_not_wait_for_its_standby_is_not_acknowledged(
    postgres: Cluster, desk: Desk
) -> None:
    desk.create("sesn_1", message("a"))
    away = psycopg.sql.SQL("ALTER SYSTEM SET synchronous_standby_names = {}")
    reload = psycopg.sql.SQL("SELECT pg_reload_conf()")
    postgres.execute(away.format(psycopg.sql.Literal("FIRST 1 (nobody)")))
    try:
        postgres.execute(reload)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(_append_on_and_on, desk)
            # An administrator who wants it to go on.
            postgres.execute(psycopg.sql.SQL(_CANCEL_THE_WAIT))
            with pytest.raises(StoreUnavailable):
                waiting.result(AT_ONCE)
    finally:
        postgres.execute(away.format(psycopg.sql.Literal("")))
        postgres.execute(reload)
    desk.store.rollback()
    # It is there, in its place, as may be after any commit of which nothing was heard.
    assert [event.position for event in desk.log()] == list(range(1, len(desk.log()) + 1))


def _append_on_and_on(desk: Desk) -> None:
    """The server does not heed its new settings at once."""
    for number in itertools.count():
        desk.append("sesn_1", message(f"e{number}"))


_CANCEL_THE_WAIT = """DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep') LOOP
    PERFORM pg_sleep(0.005);
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
  PERFORM pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep';
END $$"""


def test_whoever_asks_for_a_name_that_cannot_be_is_told_so_and_holds_up_no_other(
    desk: Desk,
) -> None:
    desk.create()
    named = Needs(sessions=("sesn_\0", "sesn_1"), leases=("session/\0",), events=("\0",))
    tx = desk.store.begin([named])
    assert tx.session("sesn_\0") is None
    assert tx.lease("session/\0") is None
    _append(tx, "a")
    desk.store.commit()
    assert desk.session().head == 1


def test_a_text_that_the_database_cannot_hold_breaks_nothing(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    with pytest.raises(StoreRejects):
        desk.store.begin([Needs(workspaces=("default\0",))])
    desk.store.rollback()
    with pytest.raises(StoreRejects):
        desk.store.reader().session("sesn_\0")
    desk.append("sesn_1", message("b"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DiskFull(), StoreFull),
        (psycopg.errors.DeadlockDetected(), StoreConflict),
        (psycopg.errors.SerializationFailure(), StoreConflict),
        (psycopg.errors.AdminShutdown(), StoreUnavailable),
        (psycopg.errors.CannotConnectNow(), StoreUnavailable),
        (psycopg.errors.ReadOnlySqlTransaction(), StoreUnavailable),
        (psycopg.OperationalError("the connection is closed"), StoreUnavailable),
        (psycopg.errors.DataCorrupted(), StoreBroken),
        (psycopg.errors.UndefinedTable(), StoreBroken),
    ],
)
def test_each_error_of_the_database_means_one_thing(
    error: psycopg.Error, kind: type[Exception]
) -> None:
    assert type(store_error(error)) is kind


def test_a_password_does_not_belong_into_the_arguments() -> None:
    for url in ("postgresql://u:secret@h/d", "postgresql://h/d?password=secret"):
        with refused(Reason.CONFIG_INVALID) as error:
            store_url.check(url, from_argv=True)
        assert "secret" not in str(error.value)
        assert "PGPASSFILE" in str(error.value)
        assert store_url.check(url) == url
        assert store_url.name(url) == "postgresql://h/d"
    with refused(Reason.CONFIG_INVALID):
        store_url.check("mysql://h/d")
