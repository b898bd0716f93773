"""What the page on the daemon lists is what there is: commands, questions, words, lines, codes."""

import re
from pathlib import Path

import pytest

from hands.cli import hand
from hands.local.routes import routes
from hands.local.status import Standing
from hands.systemd import unit

PAGE = (Path(__file__).parents[2] / "docs/reference/daemon.md").read_text()
UNIT = unit.Unit(command=("/usr/bin/carpal",))


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
