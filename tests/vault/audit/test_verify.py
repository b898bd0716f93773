"""Whoever changes the audit is found, and the line is named."""

import random
from pathlib import Path

import pytest

from carpal.audit_chain import GENESIS, Head
from tests.vault.audit.desk import FIRST, Plain, checked, opened
from vault.audit.chain import later_key, line, next_key
from vault.audit.keys import AuditKeys
from vault.database import Database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with opened(tmp_path) as audit:
        for number in range(1, 21):
            audit.event(f"action.{number}", target=f"host-{number}")
    return tmp_path


def test_what_nobody_touched_verifies(folder: Path) -> None:
    verdict = checked(folder)
    assert (verdict.ok, verdict.lines, verdict.marked) == (True, 20, 20)
    assert checked(folder, None).ok, "without any key the chain alone is checked"


@pytest.mark.parametrize("number", [1, 7, 20])
def test_v32_a_flipped_byte_names_its_line(folder: Path, number: int) -> None:
    path = folder / "audit.log"
    text = path.read_bytes().splitlines(keepends=True)
    for place in random.Random(number).sample(range(len(text[number - 1]) - 1), 25):
        changed = bytearray(text[number - 1])
        changed[place] ^= 1
        path.write_bytes(b"".join([*text[: number - 1], changed, *text[number:]]))
        verdict = checked(folder)
        assert verdict.problems, f"byte {place}"
        assert verdict.problems[0].number == number, f"byte {place}"


@pytest.mark.parametrize("number", [1, 7, 20])
def test_v32_a_removed_line_is_named(folder: Path, number: int) -> None:
    path = folder / "audit.log"
    text = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(text[: number - 1] + text[number:]))
    assert checked(folder).problems[0].number == number


def test_a_cut_end_is_named_also_by_a_vault_that_writes_on(folder: Path) -> None:
    path = folder / "audit.log"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:15]))
    with opened(folder) as audit:
        audit.written("later")
    with opened(folder) as audit:
        audit.written("later still")
    verdict = checked(folder)
    assert verdict.problems[0].number == 16
    assert [each.what for each in verdict.problems if "cut away" in each.what]
    assert path.read_bytes().count(b'"what":"cut"') == 1


def test_lines_that_were_all_written_anew_show_by_their_marks(folder: Path) -> None:
    """The table and the note of the head go with them: whoever wrote them had the whole disk."""
    forged, head = [], GENESIS
    for _ in range(20):
        facts = {"action": "harmless"}
        text, head = line(head, "2026-11-30T00:00:00.000Z", "event", facts, (0, b"x" * 32))
        forged.append(text)
    for path in folder.iterdir():
        path.unlink()
    (folder / "audit.log").write_bytes(b"".join(forged))
    assert checked(folder, None).ok, "the chain alone cannot tell"
    problem = checked(folder).problems[0]
    assert (problem.number, "its mark is wrong" in problem.what) == (1, True)


def test_the_key_of_today_says_nothing_of_yesterdays(tmp_path: Path) -> None:
    today = ["2026-01-01"]
    database = Database(tmp_path / "audit.db")
    keys = AuditKeys(database, Plain(), lambda: today[0])
    keys.start(FIRST)
    assert keys.current() == (0, FIRST)
    assert keys.current() == (0, FIRST)
    today[0] = "2026-01-05"
    assert keys.current() == (1, next_key(FIRST))
    assert AuditKeys(database, Plain(), lambda: today[0]).current() == (1, next_key(FIRST))
    # A power cut took the table's last change: the line says which key wrote it.
    assert keys.current(at_least=3) == (3, later_key(FIRST, 3))
    database.close()
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert FIRST not in left
    assert next_key(FIRST) not in left
    assert later_key(FIRST, 3) in left


def test_a_head_that_was_noted_elsewhere_is_held_against_it(folder: Path) -> None:
    from contextlib import closing

    from vault.audit.opening import AuditReader

    with closing(AuditReader(folder)) as reader:
        real = reader.head()
        assert real.number == 20
        assert reader.verify(None, (("the note", real),)).ok
        for wrong in (Head(25, real.hash), Head(20, "0" * 64)):
            (problem,) = reader.verify(None, (("the note", wrong),)).problems
            assert (problem.where, problem.number) == ("the note", wrong.number)
