"""What a killed backup left is removed by the next; what another writes is not."""

import fcntl
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sessiond.sqlite.backup import backup
from sessiond.sqlite.part import part_of
from sessiond.sqlite.store import SqliteStore
from tests.command import ROOT
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message

_CHILD = """
import sys, time
from pathlib import Path
from sessiond.sqlite import backup, part
backup._sync = lambda path: (print("copied", flush=True), time.sleep(600))
backup.backup(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_killed_backup_leaves_what_the_next_one_removes(tmp_path: Path) -> None:
    place, to = tmp_path / "store" / "sessions.db", tmp_path / "to"
    to.mkdir()
    with closing(SqliteStore(place, FakeClock())) as store:
        Desk(store, FakeClock()).create("sesn_1", message("a"))
    command = [sys.executable, "-c", _CHILD, str(place), str(to / "monday.db")]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"copied\n"
        backup(place, to / "tuesday.db")
        left = f".monday.db.{child.pid}.part"
        assert {file.name for file in to.iterdir()} == {left, "tuesday.db"}  # it is written
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    backup(place, to / "wednesday.db")
    assert {file.name for file in to.iterdir()} == {"tuesday.db", "wednesday.db"}


def test_a_file_of_others_is_left_alone_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / ".film.12.part").write_bytes(b"a film, half")
    (tmp_path / ".folder.12.part").mkdir()
    (tmp_path / ".link.12.part").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".empty.12.part").touch()
    (tmp_path / ".empty.12.part-journal").touch()
    held = (tmp_path / ".held.12.part").open("wb")
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with part_of(tmp_path / "backup.db") as part:
            assert part.stat().st_mode & 0o777 == 0o600
        names = {file.name for file in tmp_path.iterdir()}
    assert names == {".film.12.part", ".folder.12.part", ".link.12.part", ".held.12.part"}
