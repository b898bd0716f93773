"""Every claim of the page on the daemon is held by a test: `daemon_claims.txt` says by which.

And what the page lists is what there is: commands, questions, words, lines, codes, numbers.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from brain.app import BrainConfig
from hands.app import HandConfig
from hands.cli import hand
from hands.commands.doctor import parse_hold
from hands.commands.drain import drain
from hands.commands.install import uninstall
from hands.commands.units import text as unit_text
from hands.diag import log_source
from hands.doctor.rows import Verdict
from hands.local import http, server
from hands.local.routes import routes
from hands.local.status import Standing
from hands.systemd import install, noted, unit
from tests.hands.diag.test_diag import MEMBERS

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/reference/daemon.md").read_text()
CLAIMS = (TESTS / "hands/daemon_claims.txt").read_text()
UNIT = unit.Unit(command=("/usr/bin/carpal",))


def claims_of(page: str) -> list[str]:
    """Its headings, sentences, rows of tables and lines of code, in order, each on one line."""
    found: list[str] = []
    for block in re.split(r"\n\n+", page.strip()):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            found += lines[2:]
        elif lines[0].startswith("```"):
            found += lines[1:-1]
        else:
            found += re.split(r"(?<=[.?!]) (?=[A-Z`\[])", " ".join(lines))
    return found


def held_by(claims: str) -> dict[str, list[str]]:
    """Claim → the lines below it, of `daemon_claims.txt`."""
    found: dict[str, list[str]] = {}
    for line in claims.partition("\n\n")[2].splitlines():
        if line.startswith("    "):
            found[next(reversed(found))].append(line.strip())
        elif line:
            assert line not in found, f"twice: {line}"
            found[line] = []
    return found


@cache
def defined_in(file: str) -> frozenset[str]:
    """The names of the tests in a file."""
    path = TESTS / file
    nodes = ast.parse(path.read_text()).body if path.is_file() else []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(each.name for each in nodes if isinstance(each, kinds))


def test_every_claim_of_the_page_is_in_the_list_and_every_one_in_the_list_on_the_page() -> None:
    assert list(held_by(CLAIMS)) == claims_of(PAGE)


def test_each_claim_names_the_tests_that_hold_it_or_says_why_it_needs_none() -> None:
    for claim, held in held_by(CLAIMS).items():
        assert bool(held) != claim.startswith("#"), f"which tests would fail were it false? {claim}"
        for each in held:
            file, _, name = each.partition("::")
            assert each.startswith("-- ") or name in defined_in(file), f"there is no {each}"


def cells(heading: str) -> list[str]:
    """The first cells of the table under this row of heads."""
    table = PAGE.partition(heading)[2].partition("\n\n")[0]
    return [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()[2:]]


def coded(cell: str) -> list[str]:
    """What is written as code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_each_command_on_the_page_is_there() -> None:
    named = {coded(cell)[0].split()[-1] for cell in cells("| command | does |")}
    assert {"status", "doctor", "stop", "uninstall"} <= named
    assert named <= set(hand.list_commands(None))  # type: ignore[arg-type]  # it asks for none


def test_what_the_local_socket_answers_is_on_the_page_and_no_more() -> None:
    assert {coded(cell)[0] for cell in cells("| ask | answer |")} == set(routes(Standing(1)))


def test_what_status_gives_for_programs_is_on_the_page() -> None:
    listed = PAGE.partition("`--json` gives `daemon_id, state`")[2].partition("`hands_there`")[0]
    named = {"daemon_id", "state", *re.findall(r"[a-z_]+", " ".join(coded(listed)))}
    assert named - {"linked", "not"} == set(Standing(1).row())


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("| line | why |", unit.text(UNIT)),
        ("| line | what it takes from hands |", unit.strict(UNIT)),
    ],
)
def test_each_line_that_is_explained_is_in_the_unit(heading: str, text: str) -> None:
    lines = [line for cell in cells(heading) for line in coded(cell)]
    assert len(lines) >= 6
    missing = [line for line in lines if not re.search(rf"^{re.escape(line)}", text, re.MULTILINE)]
    assert missing == []


def test_what_the_strict_unit_takes_is_explained_line_by_line() -> None:
    lines = re.findall(r"^([A-Z]\w+)=", unit.strict(UNIT), re.MULTILINE)
    explained = [
        word.split("=")[0]
        for cell in cells("| line | what it takes from hands |")
        for word in coded(cell)
    ]
    assert set(lines) == set(explained)


def test_codes_after_which_it_is_not_started_again_are_those_that_say_so() -> None:
    codes = PAGE.partition("Exit codes: ")[2].partition(".")[0]
    assert re.findall(r"(\d+) ", codes) == ["0", "2", "3", "4", "78"]
    assert "RestartPreventExitStatus=2 4 78" in unit.text(UNIT)


def test_verdicts_on_the_page_are_those_there_are() -> None:
    assert [coded(cell)[0] for cell in cells("| verdict | means |")] == list(Verdict)


def test_what_diag_writes_is_on_the_page_and_no_more() -> None:
    assert [name for cell in cells("| in it | holds |") for name in coded(cell)] == list(MEMBERS)


def test_the_lines_of_units_on_the_page_are_what_the_command_says() -> None:
    (shown,) = re.findall(r"^```\n(phone .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    about = {"type": "phone", "resetting": False, "holder": None, "healthy": True, "reason": None}
    labels = {"os": "android"}
    first = about | {"unit_id": "pixel-1", "labels": labels | {"arm": "yes"}, "holder": "hand_06b…"}
    why = "its reset failed: adb: device offline"
    second = about | {"unit_id": "pixel-2", "labels": labels, "healthy": False, "reason": why}
    assert shown.splitlines() == [unit_text(first), unit_text(second)]


def test_where_the_service_is_noted_is_where_it_is_installed() -> None:
    assert noted.FILE == install.UNITS / unit.NAME
    assert f"writes `{unit.NAME}` to `{install.UNITS}`" in PAGE
    assert f"in the unit, in `{install.UNITS}`" in PAGE


def default(command: object, option: str) -> object:
    """What an option of a command is when it is not given."""
    return next(each.default for each in command.params if each.name == option)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("says", "is_so"),
    [
        ("of at most 8 KiB", http.HEAD_MAX == 8 << 10),
        ("a body of 64 KiB", http.BODY_MAX == 64 << 10),
        ("within 5 seconds", server.LIMIT == 5),
        ("32 connections at once", server._AT_ONCE == 32),
        ("(up to `60m`)", parse_hold("60m") == 3600),
        ("the last 2,000 lines or 1 MiB", log_source.LINES_MAX == 2_000),
        ("the last 2,000 lines or 1 MiB", log_source._BYTES_MAX == 1 << 20),
        ("after `--timeout` (30m)", default(drain, "timeout") == "30m"),
        ("its hands are gone (`--timeout`, 30m)", default(uninstall, "timeout") == "30m"),
        ("ten minutes after that is idle", BrainConfig().hand_idle == 600),
        ("`stop_wait` seconds (10)", HandConfig().stop_wait == 10),
        ("`stop_wait` of the settings and 30 seconds", unit._STOP_MORE == 30),
        ("systemd before 254", unit.SUBGROUPS == 254),
    ],
)
def test_each_number_of_the_page_is_the_codes(says: str, *, is_so: bool) -> None:
    assert says in " ".join(PAGE.split())
    assert is_so, says
