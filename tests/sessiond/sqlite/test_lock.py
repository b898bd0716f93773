"""The lock file's note: a kill at any moment is no damage, and less than was noted is."""

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from carpal.status import Reason
from sessiond.sqlite.lock import LockHeld, StoreLock
from sessiond.sqlite.store import SqliteStore
from tests.command import ROOT
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, refused
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
