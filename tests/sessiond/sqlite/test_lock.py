"""The lock file's note: a kill at any moment is no damage, and less than was noted is."""

import random
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.sqlite.backup import backup, restore
from sessiond.sqlite.lock import LockHeld, StoreLock
from sessiond.sqlite.store import SqliteStore
from tests.command import ROOT
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message, refused
from tests.sessiond.rules.test_append import verified

ROUNDS = 4


def test_a_kill_at_any_moment_is_never_taken_for_damage(tmp_path: Path) -> None:
    chance = random.Random()
    place = tmp_path / "sessions.db"
    for _ in range(ROUNDS):
        command = [sys.executable, "-m", "tests.sessiond.store_child", str(place)]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout is not None
        acknowledged = 0
        for _ in range(chance.randrange(1, 120)):
            acknowledged = int(child.stdout.readline())
        child.kill()
        child.wait()
        child.stdout.close()
        with closing(SqliteStore(place, FakeClock())) as store:
            desk = Desk(store, FakeClock())
            log = desk.log()
            assert len(log) >= acknowledged
            assert verified(log, "sesn_1") == desk.session().hash


def test_a_lock_is_of_one_and_a_torn_note_claims_nothing(tmp_path: Path) -> None:
    place = tmp_path / "sessions.db"
    with closing(StoreLock(place)) as lock:
        lock.check(0)
        assert StoreLock.if_free(place) is None
        with pytest.raises(LockHeld):
            StoreLock(place)
    (tmp_path / "sessions.db.lock").write_bytes(b"wal " + bytes(16))
    lock = StoreLock(place)
    (tmp_path / "sessions.db-wal").touch()
    lock.check(0)
    lock.close()


def test_a_folder_that_cannot_hold_a_lock_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused(Reason.CONFIG_INVALID) as error:
        StoreLock(tmp_path / "file" / "sessions.db")
    assert "sessions.db.lock cannot be written: " in str(error.value)


def test_a_store_that_is_missing_is_not_begun_anew_unasked(tmp_path: Path) -> None:
    place = tmp_path / "sessions.db"
    StoreLock(place).close()  # a start that failed
    with closing(SqliteStore(place, FakeClock())) as store:
        Desk(store, FakeClock()).create("sesn_1", message("a"))
    backup(place, tmp_path / "backup.db")
    with closing(SqliteStore(place, FakeClock())) as store:
        Desk(store, FakeClock()).append("sesn_1", message("b"))
    place.unlink()
    for _ in range(2):
        with refused(Reason.DATA_CORRUPT) as error:
            SqliteStore(place, FakeClock())
        assert f"{place} is missing, and was there before: restore a backup" in str(error.value)
        assert not place.exists()
    restore(place, tmp_path / "backup.db", 1_800_000_000 * SECOND, replace=False)
    with closing(SqliteStore(place, FakeClock())) as store:
        Desk(store, FakeClock()).append("sesn_1", message("c"))
    place.unlink()
    (tmp_path / "sessions.db.lock").unlink()
    SqliteStore(place, FakeClock()).close()


def test_a_tool_that_looks_at_a_served_store_takes_no_write_ahead_log_with_it(
    tmp_path: Path,
) -> None:
    place = tmp_path / "sessions.db"
    look = (
        "import sqlite3, sys; from contextlib import closing\n"
        "with closing(sqlite3.connect(sys.argv[1])) as tool:\n"
        "    print(*tool.execute('SELECT count(*) FROM events').fetchone())"
    )
    with closing(SqliteStore(place, FakeClock())) as store:
        desk = Desk(store, FakeClock())
        desk.create()
        store.maintain()
        with closing(store.reader()) as reader, reader.snapshot():
            assert reader.session("sesn_1") is not None  # so not all can be copied back
            for n in range(10):
                desk.append("sesn_1", message(str(n)))
            looked = subprocess.run(
                [sys.executable, "-c", look, str(place)], capture_output=True, check=True
            )
            assert looked.stdout == b"10\n"
            desk.append("sesn_1", message("after"))
            killed = tmp_path / "killed"
            shutil.copytree(tmp_path, killed, ignore=shutil.ignore_patterns("*-shm", "killed"))
    with closing(SqliteStore(killed / "sessions.db", FakeClock())) as store:
        assert len(Desk(store, FakeClock()).log()) == 11
