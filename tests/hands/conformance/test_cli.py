"""`carpal hand check`, as a person and as a script use it."""

import asyncio
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from hands.conformance.suite import CHECKS
from hands.isolation import probe
from hands.serving import HandServicer
from tests.command import ROOT, Command
from tests.hands.conformance import wrong
from tests.pace import SCALE


async def checked(
    tmp_path: Path, *flags: str, sandbox: str = "off", limit: float = 270
) -> tuple[int, list[dict[str, Any]], str]:
    """Its exit code, the objects it printed, and what it said on stderr."""
    command = Command(tmp_path, {"CARPAL_SANDBOX": sandbox})
    arguments = ("hand", "check", "--json", "--scale", str(2 * SCALE), *flags)
    async with command.start(*arguments) as process, asyncio.timeout(limit * SCALE):
        stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in stdout.splitlines()], stderr.decode()


def page_line(words: str) -> list[str]:
    """What follows `carpal hand check` in the line of the page on hand types with these words."""
    page = (ROOT / "docs/how-to/write-a-hand-type.md").read_text()
    (line,) = [each for each in page.splitlines() if each.startswith(f"carpal hand check {words} ")]
    return shlex.split(line, comments=True)[3:]


_NO_SANDBOX = probe.problem()
SANDBOXES = [
    "off",
    pytest.param("required", marks=pytest.mark.skipif(bool(_NO_SANDBOX), reason=_NO_SANDBOX)),
]


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_the_process_type_passes_every_check_that_it_claims(
    sandbox: str, tmp_path: Path
) -> None:
    flags = page_line("--type process")
    code, (*verdicts, summary), stderr = await checked(tmp_path, *flags, sandbox=sandbox)
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert (code, stderr) == (0, "")
    assert all(
        list(one) == ["check", "capability", "verdict", "detail", "change"] for one in verdicts
    )
    assert {one["check"] for one in verdicts} == {check.sentence for check in CHECKS}
    assert summary["ok"] is True
    assert summary["pass"] + summary["skipped"] == len(CHECKS)
    claimed = {"contract", "files"} | ({"isolated"} if sandbox == "required" else set())
    assert [
        one for one in verdicts if one["verdict"] == "skipped" and one["capability"] in claimed
    ] == []


async def test_a_failed_check_is_exit_code_1_and_says_what_is_wrong(tmp_path: Path) -> None:
    async with wrong.serving(wrong.ReleasesOnce, tmp_path / "state") as socket:
        flags = ("--endpoint", f"unix://{socket}", "--only", "contract")
        code, (*verdicts, summary), _ = await checked(tmp_path, *flags)
    every = {one["check"]: one for one in verdicts if one["verdict"] == "fail"}
    (failed,) = [one for check, one in every.items() if "A release ends the hand" in check]
    assert failed["detail"] == "ended, again: False, not True"
    assert failed["change"].startswith("Have Release kill the hand within 5 s and answer ended")
    assert all(one["change"] for one in every.values())
    assert (code, summary["ok"], summary["fail"]) == (1, False, len(every))
    # Another's server is not ours to kill.
    assert any("needs --type" in one["detail"] for one in verdicts)


async def test_a_type_that_hand_toml_names_a_socket_for_is_checked_there(tmp_path: Path) -> None:
    async with wrong.serving(wrong.ReleasesOnce, tmp_path / "state") as socket:
        toml = tmp_path / "hand.toml"
        toml.write_text(f'[sockets]\nprocess = "{socket}"\n')
        flags = ("--type", "process", "--config", str(toml), "--only", "contract")
        code, (*verdicts, _), _ = await checked(tmp_path, *flags)
    failed = [one["check"] for one in verdicts if one["verdict"] == "fail"]
    assert code == 1
    assert any("A release ends the hand" in check for check in failed)


async def test_what_is_skipped_is_one_line_for_people_unless_they_ask_for_each(
    tmp_path: Path,
) -> None:
    command = Command(tmp_path, {"CARPAL_SANDBOX": "off"})
    flags = ("hand", "check", "--scale", str(2 * SCALE), "--type", "process", "--only", "isolated")
    brief, each = await command(*flags), await command(*flags, "--verbose")
    count = sum(check.capability == "isolated" for check in CHECKS)
    assert brief.stdout.splitlines() == [
        f"skipped  {count} of isolated   --verbose says each, and why",
        f"0 pass, 0 fail, {count} skipped",
    ]
    lines = each.stdout.splitlines()
    assert lines[-1] == brief.stdout.splitlines()[-1]
    assert len(lines) == count + 1
    assert all("does not claim isolated" in line for line in lines[:-1])


async def test_a_server_that_goes_away_ends_the_checks_as_unreachable(tmp_path: Path) -> None:
    code, lines, stderr = await checked(tmp_path, "--endpoint", f"unix://{tmp_path}/none")
    assert (code, lines) == (3, [])
    assert "does not answer" in stderr


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ((), 2, "Missing option '--endpoint' or '--type'"),
        (("--type", "spaceship"), 5, "no hand type 'spaceship' is installed here"),
        (("--endpoint", "localhost:1"), 2, "is not unix:///PATH"),
        (("--endpoint", "unix:///" + "x" * 120), 2, "at most 107 bytes"),
        (("--type", "process", "--only", "magic"), 2, "--only: 'magic' is none of contract"),
        (("--type", "process", "--hand-config", "[]"), 2, "--hand-config: must be a JSON object"),
        (
            ("--type", "process", "--hand-config", '{"nope": 1}'),
            2,
            "no hand can be made: config.nope",
        ),
    ],
)
async def test_wrong_use_is_said_in_words(
    flags: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    got, lines, stderr = await checked(tmp_path, *flags)
    assert (got, lines) == (code, [])
    assert said in stderr


async def test_a_sandbox_that_is_none_of_its_words_is_said_with_them(tmp_path: Path) -> None:
    code, lines, stderr = await checked(tmp_path, "--type", "process", sandbox="bogus")
    assert (code, lines) == (2, [])
    assert all(says in stderr for says in ("CARPAL_SANDBOX: ", "'bogus'", "auto, off, required"))


async def test_a_type_that_is_not_ready_ends_it_with_why_and_no_check_is_made(
    tmp_path: Path,
) -> None:
    async with wrong.serving(wrong.IsNotReady, tmp_path / "state") as socket:
        code, lines, stderr = await checked(tmp_path, "--endpoint", f"unix://{socket}")
    assert (code, lines) == (3, [])
    assert "cannot be made here: the engine is away" in stderr


async def test_a_check_that_needs_a_command_that_the_hand_has_not_is_skipped_and_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sleep", "cat", "mkdir", "env"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    path = json.dumps({"env": {"PATH": str(tmp_path / "bin")}})
    async with wrong.serving(HandServicer, tmp_path / "state") as socket:
        flags = ("--endpoint", f"unix://{socket}", "--only", "contract", "--hand-config", path)
        _, (*verdicts, _), _ = await checked(tmp_path, *flags)
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert "the hand has no head" in {one["detail"] for one in verdicts}


async def test_a_type_that_the_server_has_not_is_named_with_those_it_has(tmp_path: Path) -> None:
    async with wrong.serving(HandServicer, tmp_path / "state") as socket:
        flags = ("--endpoint", f"unix://{socket}", "--type", "container")
        code, lines, stderr = await checked(tmp_path, *flags)
    assert (code, lines) == (2, [])
    assert "the server has no 'container'; it has process" in stderr


async def test_the_checks_can_be_listed_and_ask_nobody(tmp_path: Path) -> None:
    ended = await Command(tmp_path)("hand", "check", "--list")
    assert ended.code == 0
    assert len(ended.stdout.splitlines()) == len(CHECKS)
    assert all(": " in line for line in ended.stdout.splitlines())
