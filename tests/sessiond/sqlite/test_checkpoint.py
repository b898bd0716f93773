"""Copying the write-ahead log back holds up no writer, however long somebody reads."""

import threading
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from carpal.status import Reason
from sessiond.sqlite import checkpoint as sqlite_checkpoint
from sessiond.sqlite.store import SqliteStore
from sessiond.store import StoreBroken
from tests.pace import AT_ONCE
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message, refused


def test_a_long_read_keeps_the_log_growing_but_no_commit_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "RESET_PAGES", 50)
    monkeypatch.setattr(sqlite_checkpoint, "_CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(sqlite_checkpoint, "_FEW_PAGES", 10)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create()
    reader = store.reader()
    wal = tmp_path / "s.db-wal"

    def write(turn: int) -> None:
        for n in range(30):
            desk.append("sesn_1", message(f"{turn}-{n}", bytes(50_000)))
            store.maintain()

    with reader.snapshot():
        assert reader.session("sesn_1") is not None
        # At 5 s a wait, which is what SQLite's own way would take.
        watchdog = threading.Timer(AT_ONCE, reader._connection.raw.interrupt)  # type: ignore[attr-defined]
        watchdog.start()
        write(0)
        assert watchdog.is_alive(), "commits waited for the reader"
        watchdog.cancel()
        grown = wal.stat().st_size
        assert grown > 30 * 50_000
        found = reader.session("sesn_1")
        assert found is not None
        assert found[0].head == 0
    for turn in (1, 2, 3):
        write(turn)
    assert wal.stat().st_size < 2 * grown, "it starts over once nobody reads"
    reader.close()
    store.close()


def test_a_copy_is_asked_for_as_the_log_grows_and_not_by_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "_CHECKPOINT_PAGES", 20)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create()
    checkpointer = store._checkpointer
    asked: list[int] = []
    monkeypatch.setattr(checkpointer._wanted, "set", lambda: asked.append(checkpointer.pages))
    for n in range(100):
        desk.append("sesn_1", message(str(n)))
    monkeypatch.undo()
    pages = checkpointer.pages
    assert pages > 200, "nobody copied, so it only grew"
    assert 5 <= len(asked) <= pages // 20
    store.close()


def test_a_copy_that_somebody_reads_in_the_way_of_is_not_tried_again_by_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "_CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(sqlite_checkpoint, "RESET_PAGES", 100)
    monkeypatch.setattr(sqlite_checkpoint, "_FEW_PAGES", 50)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create()
    checkpointer = store._checkpointer
    asked: list[int] = []
    copied = threading.Event()

    def copy(**_: object) -> tuple[int, int]:
        asked.append(checkpointer.pages)
        copied.set()
        return checkpointer.pages, 1

    connection = checkpointer._connection
    monkeypatch.setattr(checkpointer, "_connection", SimpleNamespace(wal_checkpoint=copy))
    while checkpointer.pages < 600:
        desk.append("sesn_1", message(str(checkpointer.pages)))
        store.maintain()
        while checkpointer._copying:
            assert copied.wait(AT_ONCE)
    monkeypatch.setattr(checkpointer, "_connection", connection)
    assert 5 <= len(asked) <= 600 // 50
    store.close()


def test_after_the_log_was_cut_off_copies_are_asked_for_as_if_it_was_never_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "_CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(sqlite_checkpoint, "ERASE_AGAIN", 0.0)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create()
    checkpointer = store._checkpointer
    with closing(store.reader()) as reader, reader.snapshot():
        assert reader.session("sesn_1") is not None  # so it grows
        while checkpointer.pages < 200:
            desk.append("sesn_1", message(str(checkpointer.pages)))
    checkpointer.erase_soon()
    until = time.monotonic() + AT_ONCE
    while store.erasing and time.monotonic() < until:
        store.maintain()
    asked: list[int] = []
    monkeypatch.setattr(checkpointer._wanted, "set", lambda: asked.append(checkpointer.pages))
    while checkpointer.pages < 100:
        desk.append("sesn_1", message(f"after {checkpointer.pages}"))
    monkeypatch.undo()
    assert len(asked) >= 3, "the writer would have to copy it all itself"
    store.close()


def test_what_was_committed_is_copied_back_beside_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "_CHECKPOINT_PAGES", 20)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create()
    with closing(store.reader()) as reader, reader.snapshot():
        # Who reads keeps the log from beginning anew, with nothing that is copied.
        assert reader.session("sesn_1") is not None
        for n in range(20):
            desk.append("sesn_1", message(str(n)))
        until = time.monotonic() + AT_ONCE
        copied = 0
        while not copied and time.monotonic() < until:
            _, copied = store._connection.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            time.sleep(0.01)
        assert copied > 0, "the writer would have to copy it all itself"
    store.close()


def test_the_log_is_written_over_and_not_made_longer_under_constant_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "_CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(sqlite_checkpoint, "RESET_PAGES", 60)
    monkeypatch.setattr(sqlite_checkpoint, "_FEW_PAGES", 10)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock)
    desk = Desk(store, clock)
    desk.create()
    pages: list[int] = []
    for n in range(1_000):
        desk.append("sesn_1", message(str(n)))
        store.maintain()
        pages.append(store._checkpointer.pages)
    assert max(pages) < 8 * 60 + 20
    assert sum(after < before for before, after in pairwise(pages)) > 3, "it began anew"
    store.close()


def test_a_start_without_a_connection_to_copy_by_is_refused_by_name_and_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(path: str) -> apsw.Connection:
        raise StoreBroken(f"{path} cannot be opened")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_checkpoint, "open_raw", none)
        with refused(Reason.CONFIG_INVALID) as error:
            SqliteStore(tmp_path / "s.db", FakeClock())
    assert str(tmp_path / "s.db") in str(error.value)
    SqliteStore(tmp_path / "s.db", FakeClock()).close()
