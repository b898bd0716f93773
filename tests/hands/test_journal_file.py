"""The journal's file: damaged, foreign or of a newer version, nothing runs twice for it."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.inside import tree
from hands.journal import HandRow, Journal
from tests.hands.place import open_place
from tests.hands.test_service import refused

ROW = HandRow("h", "provisioning", "process", "default", b"digest", "boot", 1.5, 600.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal is to be."""
    return tmp_path / "journal.db"


def _overwritten(path: Path) -> None:
    journal = Journal(path)
    for number in range(500):
        journal.accepted("h", f"c{number}", b"digest")
    journal.close()
    content = bytearray(path.read_bytes())
    content[4096:-4096] = b"?" * (len(content) - 8192)
    path.write_bytes(content)


def _not_a_database(path: Path) -> None:
    path.write_bytes(bytes(20_000))  # what a machine that lost its power may leave


def _cut_off(path: Path) -> None:
    _overwritten(path)
    path.write_bytes(path.read_bytes()[:5_000])


@pytest.mark.parametrize("damage", [_overwritten, _not_a_database, _cut_off])
def test_a_damaged_journal_is_set_aside_and_the_new_one_has_another_id(
    path: Path, damage: object
) -> None:
    before = Journal(path)
    before.close()
    damage(path)  # type: ignore[operator]
    after = Journal(path, "d")
    assert after.journal_id != before.journal_id
    assert (after.sequence, after.hands()) == (0, [])
    after.accepted("h", "c", b"")
    after.close()
    assert len(list(path.parent.glob("journal.db.damaged-*"))) >= 1


def test_another_daemons_journal_is_refused_while_it_has_hands_and_else_begun_anew(
    path: Path,
) -> None:
    journal = Journal(path, "d1")
    journal.provisioning(ROW, "s")
    journal.close()
    with pytest.raises(CarpalError, match=r"'d1'.*'d2'") as raised:
        Journal(path, "d2")
    assert raised.value.reason is Reason.CONFIG_INVALID
    assert "move it away" in raised.value.action
    journal = Journal(path, "d1")
    journal.released("h")
    first = journal.journal_id
    journal.close()
    journal = Journal(path, "d2")
    assert journal.journal_id != first
    journal.close()
    journal = Journal(path, "d2")
    assert journal.journal_id != first
    journal.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("CREATE TABLE recipes (name TEXT)", "another program"),
        ("PRAGMA application_id = 7", "another program"),
        ("PRAGMA user_version = 99", "version 99"),
    ],
)
def test_a_database_of_another_program_or_a_newer_version_is_refused_and_left_alone(
    path: Path, change: str, words: str
) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(change)
    before = path.read_bytes()
    with pytest.raises(CarpalError, match=words) as raised:
        Journal(path, "d")
    assert raised.value.reason is Reason.CONFIG_INVALID
    assert path.read_bytes() == before


def test_a_journal_of_version_1_goes_on_with_its_sequence(path: Path) -> None:
    journal = Journal(path, "d")
    journal.accepted("h", "c", b"")
    journal.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("ALTER TABLE calls DROP COLUMN sequence")
        db.execute("UPDATE meta SET value = '7' WHERE name = 'sequence'")
        db.execute("PRAGMA user_version = 1")
    journal = Journal(path, "d")
    journal.starting("h", "c")
    assert journal.sequence == 8
    journal.close()
    journal = Journal(path, "d")
    assert journal.sequence == 8
    journal.close()


def test_a_journal_that_cannot_be_read_is_refused_and_left_alone(path: Path) -> None:
    path.mkdir()
    with pytest.raises(CarpalError, match="cannot be opened"):
        Journal(path, "d")
    assert path.is_dir()


def test_a_journal_on_a_full_disk_is_not_said_to_be_moved_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.mkdir()  # cannot be opened
    disk = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=4096))
    with pytest.raises(CarpalError) as caught:
        Journal(path)
    assert caught.value.reason is Reason.STORE_FULL
    assert caught.value.action.startswith("free some and start the daemon again")


def test_a_copied_journal_counts_as_another_and_one_that_stayed_or_was_moved_does_not(
    path: Path, tmp_path: Path
) -> None:
    """Of two daemons on copies each would tell as never accepted what the other one ran."""
    first = Journal(path, "d1")
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    copy = Journal(tmp_path.with_name("copy") / path.name, "d1")
    assert copy.journal_id != first.journal_id
    known = first.journal_id
    first.close()
    copy.close()
    moved = tmp_path.rename(tmp_path.with_name("moved")) / path.name
    again = Journal(moved, "d1")
    assert again.journal_id == known
    again.close()


async def test_with_a_damaged_journal_every_hand_ends_and_nothing_runs_twice(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with open_place(state, end=False) as place:
        hand = await place.hand()
        request = place.request(hand, command="echo ran >> $OLDPWD/log; sleep 60")
        row = place.journal.hand(hand)
        assert row is not None
        first = place.journal.journal_id
    (state / "journal.db").write_bytes(bytes(20_000))
    for suffix in ("-wal", "-shm"):
        Path(f"{state}/journal.db{suffix}").unlink(missing_ok=True)
    async with open_place(state) as place:
        assert place.journal.journal_id != first
        assert not tree.alive(row.facts["pid"], row.facts["start"])
        assert not list((state / "hands").iterdir())
        error = await refused(place.execute(request))
        assert error.reason is Reason.HAND_NOT_FOUND


async def test_a_journal_that_went_back_runs_no_call_a_second_time(tmp_path: Path) -> None:
    """Restored on the same boot, the hand still alive: the supervisor knows what it ran."""
    state, kept = tmp_path / "state", tmp_path / "kept"
    async with open_place(state, end=False) as place:
        hand = await place.hand()
    shutil.copytree(state, kept, ignore=shutil.ignore_patterns("hands"))
    async with open_place(state, end=False) as place:
        request = place.request(hand, command="echo ran >> log; cat log")
        assert (await place.steps(request))[-1].result.content == "ran\n"
        log_knows = place.journal.sequence
    shutil.copytree(kept, state, dirs_exist_ok=True)
    async with open_place(state) as place:
        claim = pb.ClaimRequest(driver=place.driver(), hand_id=hand, call_ids=[request.call_id])
        answer = await place.service.claim(claim)
        assert answer.calls[0].state == pb.CALL_STATE_UNKNOWN
        assert answer.sequence < log_knows, "so a brain does not believe it"
        result = (await place.steps(request))[-1].result
        assert result.outcome == pb.OUTCOME_INTERRUPTED
        assert (await place.sh(hand, "cat log")).content == "ran\n"


async def test_a_claim_names_the_boot_of_now_not_the_hands(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with open_place(state, boot_id="before", end=False) as place:
        hand = await place.hand()
    async with open_place(state, boot_id="after") as place:
        answer = await place.service.claim(pb.ClaimRequest(driver=place.driver(), hand_id=hand))
        assert answer.boot_id == "after"
