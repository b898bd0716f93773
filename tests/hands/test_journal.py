"""The journal: written before what it announces, and there after any death of the process."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hands.journal import HandRow, Journal, OutOfOrder

ROW = HandRow("h", "provisioning", "process", "default", b"digest", "boot", 1.5, 600.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_every_change_raises_the_sequence_by_one_and_survives_reopening(path: Path) -> None:
    journal = Journal(path)
    steps: list[Callable[[], None]] = [
        lambda: journal.raise_epoch("s", 3),
        lambda: journal.provisioning(ROW, "s"),
        lambda: journal.provisioned("h", {"pid": 1}, b"result"),
        lambda: journal.accepted("h", "c", b"d"),
        lambda: journal.starting("h", "c"),
        lambda: journal.running("h", "c", 7, 8),
        lambda: journal.terminal("h", "c", "ok", b"done"),
        lambda: journal.acknowledged("h", "c"),
        lambda: journal.tombstone("h", "t"),
        lambda: journal.keep_note("name", "value"),
    ]
    for number, step in enumerate(steps, start=1):
        step()
        assert journal.sequence == number
    journal.close()
    again = Journal(path)
    assert again.journal_id == journal.journal_id
    assert again.sequence == len(steps)
    assert again.epoch("s") == 3
    assert again.note("name") == "value"
    hand = again.hand("h")
    assert hand is not None
    assert (hand.state, hand.facts, hand.result) == ("live", {"pid": 1}, b"result")
    assert again.sessions_of("h") == ["s"]
    call, tomb = again.call("h", "c"), again.call("h", "t")
    assert call is not None
    assert (call.state, call.outcome, call.result) == ("acknowledged", "ok", None)
    assert (call.pid, call.start_time, call.digest) == (7, 8, b"d")
    assert tomb is not None
    assert tomb.state == "tombstone"
    again.close()


def test_open_calls_come_in_the_order_they_were_accepted(path: Path) -> None:
    journal = Journal(path)
    for name in ("z", "a", "m", "k"):
        journal.accepted("h", name, b"")
    journal.terminal("h", "m", "ok", b"")
    assert [call.call_id for call in journal.open_calls("h")] == ["z", "a", "k"]
    journal.close()


def test_a_call_is_accepted_once(path: Path) -> None:
    journal = Journal(path)
    journal.accepted("h", "c", b"1")
    sequence = journal.sequence
    with pytest.raises(sqlite3.IntegrityError):
        journal.accepted("h", "c", b"2")
    assert journal.sequence == sequence
    call = journal.call("h", "c")
    assert call is not None
    assert call.digest == b"1"
    journal.close()


def test_a_released_hand_leaves_its_id_and_nothing_else(path: Path) -> None:
    journal = Journal(path)
    journal.provisioning(ROW, "s")
    journal.accepted("h", "c", b"")
    journal.released("h")
    hand = journal.hand("h")
    assert hand is not None
    assert hand.state == "released"
    assert journal.hands() == []
    assert journal.call("h", "c") is None
    assert journal.sessions_of("h") == []
    journal.close()


def test_what_was_written_survives_the_kill_of_its_process(path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from hands.journal import Journal;"
        "journal = Journal(Path(sys.argv[1])); journal.accepted('h', 'c', b'');"
        "journal.starting('h', 'c'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=root, check=False, timeout=20
    )
    assert ended.returncode == -9
    journal = Journal(path)
    call = journal.call("h", "c")
    assert call is not None
    assert call.state == "starting"
    journal.close()


@pytest.mark.parametrize(
    ("done", "step"),
    [
        ((), "starting"),
        (("accepted",), "running"),
        (("accepted",), "acknowledged"),
        (("accepted", "terminal"), "starting"),
        (("accepted", "starting", "running"), "starting"),
        (("accepted", "starting", "running", "terminal"), "running"),
        (("accepted", "starting", "running", "terminal"), "terminal"),
        (("accepted", "starting", "running", "terminal", "acknowledged"), "terminal"),
        (("tombstone",), "terminal"),
    ],
)
def test_a_step_that_may_not_follow_is_refused_and_changes_nothing(
    path: Path, done: tuple[str, ...], step: str
) -> None:
    journal = Journal(path)
    more: dict[str, tuple[object, ...]] = {
        "accepted": (b"d",),
        "running": (7, 8),
        "terminal": ("ok", b"done"),
    }
    for each in done:
        getattr(journal, each)("h", "c", *more.get(each, ()))
    before = journal.call("h", "c"), journal.sequence
    with pytest.raises(OutOfOrder):
        getattr(journal, step)("h", "c", *more.get(step, ()))
    assert (journal.call("h", "c"), journal.sequence) == before
    journal.close()


def test_a_call_that_need_not_wait_is_starting_in_one_step(path: Path) -> None:
    journal = Journal(path)
    journal.starting("h", "c", b"digest")
    call = journal.call("h", "c")
    assert call is not None
    assert (call.state, call.digest, journal.sequence) == ("starting", b"digest", 1)
    with pytest.raises(sqlite3.IntegrityError):
        journal.starting("h", "c", b"digest")
    journal.close()


def test_a_step_that_a_full_disk_does_not_take_says_so_and_changes_nothing(path: Path) -> None:
    """SQLite rolls some of it back by itself: then there is nothing left to roll back."""
    journal = Journal(path)
    db = sqlite3.connect(path)
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.close()
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    before = journal.sequence
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.keep_note("n", "x" * 1_000_000)
    journal._db.execute("PRAGMA max_page_count = 100000")
    assert (journal.sequence, journal.note("n")) == (before, "")
    journal.keep_note("n", "y")
    assert (journal.sequence, journal.note("n")) == (before + 1, "y")
    journal.close()


def test_what_is_remembered_of_hands_and_epochs_is_what_was_written(path: Path) -> None:
    journal = Journal(path)
    journal.provisioning(ROW, "s")

    def fails() -> None:
        with pytest.raises(sqlite3.IntegrityError):
            journal.provisioning(ROW, "s")

    changes: list[Callable[[], None]] = [
        lambda: journal.provisioned("h", {"pid": 1}, b"result"),
        lambda: journal.raise_epoch("s", 4),
        fails,
        lambda: journal.lost("h", "why"),
        lambda: journal.unshare("h", "s"),
        lambda: journal.released("h"),
        lambda: journal.raise_epoch("s", 5),
        lambda: journal.not_provisioned("h"),
    ]
    for change in changes:
        for _ in range(2):  # asked for, and then remembered
            assert journal.hand("h")
            assert journal.epoch("s") in (0, 4, 5)
            journal.sessions_of("h")
        change()
        told = journal.hand("h"), journal.sessions_of("h"), journal.epoch("s")
        fresh = Journal(path)
        assert told == (fresh.hand("h"), fresh.sessions_of("h"), fresh.epoch("s"))
        fresh.close()
    journal.close()
