"""Backups are one moment of the store, whole; a restore is all or nothing, and fences."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.sqlite.backup import backup, restore
from sessiond.sqlite.store import SqliteStore
from tests.sessiond import damage
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message, refused
from tests.sessiond.rules.test_append import verified

WALL = 1_800_000_000 * SECOND


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store" / "sessions.db"


@pytest.fixture
def desk(place: Path) -> Iterator[Desk]:
    """The rules on a store with a session of three events, which is served."""
    clock = FakeClock()
    store = SqliteStore(place, clock)
    desk = Desk(store, clock)
    desk.create("sesn_1", *(message(id) for id in "abc"), wake=True)
    yield desk
    store.close()


def opened(place: Path) -> "closing[SqliteStore]":
    return closing(SqliteStore(place, FakeClock()))


def ids(store: SqliteStore) -> list[str]:
    return [event.id for event in Desk(store, FakeClock()).log()]


def test_a_backup_taken_under_writes_is_a_moment_of_the_log_and_stops_no_writer(
    desk: Desk, place: Path, tmp_path: Path
) -> None:
    for n in range(20):
        desk.append("sesn_1", message(f"large-{n}", bytes(900_000)))
    taken = threading.Event()

    def take() -> None:
        backup(place, tmp_path / "backup.db")
        taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    written = 0
    while not taken.is_set():
        desk.append("sesn_1", message(f"during-{written}"))
        written += 1
    thread.join()
    restore(tmp_path / "other" / "sessions.db", tmp_path / "backup.db", WALL, replace=False)
    with opened(tmp_path / "other" / "sessions.db") as store:
        then = Desk(store, FakeClock())
        log = then.log()
        assert verified(log, "sesn_1") == then.session().hash
        assert 23 <= len(log) <= 23 + written
    assert desk.log()[: len(log)] == log
    assert len(desk.log()) == 23 + written


def test_a_backup_is_one_private_file_and_never_replaces_another(
    desk: Desk, place: Path, tmp_path: Path
) -> None:
    to = tmp_path / "there" / "backup.db"
    with refused(Reason.CONFIG_INVALID) as error:
        backup(place, to)
    assert f"{to} cannot be written: No such file" in str(error.value)
    to.parent.mkdir()
    backup(place, to)
    assert to.stat().st_mode & 0o777 == 0o600
    before = to.read_bytes()
    desk.append("sesn_1", message("d"))
    with refused(Reason.CONFIG_INVALID) as error:
        backup(place, to)
    assert "is there already" in str(error.value)
    assert to.read_bytes() == before
    assert [file.name for file in to.parent.iterdir()] == ["backup.db"]


def test_what_a_killed_process_left_can_be_backed_up_and_what_was_cut_off_it_cannot(
    desk: Desk, place: Path, tmp_path: Path
) -> None:
    damage.copy(place.parent, tmp_path / "killed")
    left = tmp_path / "killed" / "sessions.db"
    backup(left, tmp_path / "backup.db")
    wal = tmp_path / "killed" / "sessions.db-wal"
    with wal.open("r+b") as file:
        file.truncate(wal.stat().st_size - 1)
    with refused(Reason.DATA_CORRUPT) as error:
        backup(left, tmp_path / "second.db")
    assert "sessions.db-wal is damaged" in str(error.value)
    assert not (tmp_path / "second.db").exists()
    with refused(Reason.DATA_CORRUPT):
        SqliteStore(left, FakeClock())
    restore(left, tmp_path / "backup.db", WALL, replace=True)
    with opened(left) as store:
        assert ids(store) == ["a", "b", "c"]


def test_a_restore_waits_for_no_one_and_replaces_nothing_unasked(
    desk: Desk, place: Path, tmp_path: Path
) -> None:
    backup(place, tmp_path / "backup.db")
    desk.append("sesn_1", message("d"))
    with refused(Reason.CONFIG_INVALID) as error:
        restore(place, tmp_path / "backup.db", WALL, replace=True)
    assert "in use by another sessiond, or a restore" in str(error.value)
    damage.copy(place.parent, tmp_path / "stopped")
    stopped = tmp_path / "stopped" / "sessions.db"
    with refused(Reason.CONFIG_INVALID) as error:
        restore(stopped, tmp_path / "backup.db", WALL, replace=False)
    assert "add --replace to move it aside" in str(error.value)
    done = restore(stopped, tmp_path / "backup.db", WALL, replace=True)
    with opened(stopped) as store:
        assert ids(store) == ["a", "b", "c"]
    assert done.aside is not None
    assert done.aside.name == "sessions.db.replaced-20270115T080000"
    with opened(done.aside) as store:
        assert ids(store) == ["a", "b", "c", "d"]


def test_two_restores_of_one_backup_differ_in_their_generation(
    desk: Desk, place: Path, tmp_path: Path
) -> None:
    backup(place, tmp_path / "backup.db")
    other = tmp_path / "other" / "sessions.db"
    first = restore(other, tmp_path / "backup.db", WALL, replace=True)
    second = restore(other, tmp_path / "backup.db", WALL, replace=True)
    assert second.fenced.generation > first.fenced.generation
    assert first.aside is None
    third = restore(other, tmp_path / "backup.db", WALL + 5 * SECOND, replace=True)
    assert third.fenced.generation > second.fenced.generation


def test_a_damaged_backup_is_refused_and_what_is_there_stays(
    desk: Desk, place: Path, tmp_path: Path
) -> None:
    backup(place, tmp_path / "backup.db")
    data = bytearray((tmp_path / "backup.db").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "backup.db").write_bytes(data)
    damage.copy(place.parent, tmp_path / "stopped")
    stopped = tmp_path / "stopped" / "sessions.db"
    (tmp_path / "diary.db").write_bytes(b"dear diary " * 100)
    for name, reason in (
        ("backup.db", Reason.DATA_CORRUPT),
        ("diary.db", Reason.CONFIG_INVALID),
        ("nothing.db", Reason.CONFIG_INVALID),
        ("stopped", Reason.CONFIG_INVALID),
        ("/proc/self/mem", Reason.CONFIG_INVALID),
    ):
        with refused(reason) as error:
            restore(stopped, tmp_path / name, WALL, replace=True)
        assert str(tmp_path / name) in str(error.value)
    with opened(stopped) as store:
        assert ids(store) == ["a", "b", "c"]
    assert not [file for file in stopped.parent.iterdir() if "part" in file.name]


def test_a_folder_in_the_place_of_a_store_is_said_to_be_no_file(tmp_path: Path) -> None:
    place = tmp_path / "sessions.db"
    place.mkdir()
    with refused(Reason.CONFIG_INVALID) as error:
        SqliteStore(place, FakeClock())
    assert f"{place} is no file" in str(error.value)
    with refused(Reason.CONFIG_INVALID) as error:
        backup(place, tmp_path / "backup.db")
    assert f"there is no store at {place}" in str(error.value)


def test_a_restore_cut_short_is_never_served_and_can_be_done_again(
    desk: Desk, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(place, tmp_path / "backup.db")
    damage.copy(place.parent, tmp_path / "stopped")
    stopped = tmp_path / "stopped" / "sessions.db"

    def cut(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", cut)
        with pytest.raises(KeyboardInterrupt):
            restore(stopped, tmp_path / "backup.db", WALL, replace=True)
    with refused(Reason.CONFIG_INVALID) as error:
        SqliteStore(stopped, FakeClock())
    assert "a restore of" in str(error.value)
    assert "was cut short: run it again" in str(error.value)
    restore(stopped, tmp_path / "backup.db", WALL, replace=True)
    with opened(stopped) as store:
        assert ids(store) == ["a", "b", "c"]
