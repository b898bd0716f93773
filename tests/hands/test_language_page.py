"""The page on hand types in other languages: what it shows is run, and what it promises is true."""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin import socket, socket_hand, socket_said, socket_server
from hands.builtin.socket import SocketType
from hands.systemd import unit
from tests.command import ROOT, Command
from tests.examples.foreign import passes, run, started
from tests.hands.place import open_place

PATH = ROOT / "docs" / "how-to" / "write-a-hand-type-in-another-language.md"
PAGE = PATH.read_text()
SNIPPETS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
NODE = ROOT / "examples" / "04_a_hand_type_in_node"


def snippets(language: str) -> list[str]:
    """Those of one language, in order."""
    return [text for each, text in SNIPPETS if each == language]


async def test_the_contract_is_written_as_it_says(tmp_path: Path) -> None:
    _, *line = shlex.split(snippets("sh")[0])
    command = Command(tmp_path)
    ended = await command(*line[:-1], str(tmp_path / "protos"))
    assert ended.code == 0, ended.stderr
    written = (tmp_path / "protos" / "carpal" / "v1" / "hand.proto").read_text()
    imports = re.findall(r'^import "(.*)";', written, re.M)
    assert all(each.startswith("google/protobuf/") for each in imports)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm: scripts/setup in CI has it")
async def test_the_server_that_is_shown_whole_keeps_the_contract_and_its_time(
    tmp_path: Path,
) -> None:
    folder, at = tmp_path / "counter", tmp_path / "hand.sock"
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE / name, folder)
    await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    (folder / "counter.js").write_text(snippets("js")[0])
    async with started("node", str(folder / "counter.js"), str(at), str(ROOT / "proto")):
        await passes(PATH, at, tmp_path)
        async with open_place(
            tmp_path / "state", more={"counter": SocketType("counter", at)}
        ) as place:
            hand = await place.hand(type="counter")
            said = await place.steps(place.request(hand, "count", to=2))
            assert b"".join(each.output.data for each in said) == b"1\n2\n"
            assert said[-1].result.content == "counted to 2"
            late = place.request(hand, "count", to=600, pause=1, limit=0.3)
            assert (await place.steps(late))[-1].result.outcome == pb.OUTCOME_TIMED_OUT
            assert await place.release(hand)


def test_the_times_that_it_says_are_the_daemons() -> None:
    assert "else two minutes" in PAGE
    assert socket_said.DEFAULT_LIMIT == 120
    assert "five seconds after the time it sends `Cancel`" in PAGE
    assert socket_hand._MARGIN == 5
    assert "seven seconds after that" in PAGE
    assert socket_hand._GRACE + socket_hand._MARGIN == 7
    assert "within five minutes" in PAGE
    assert socket._PROVISION == 300
    assert "waits\nfive seconds for a server" in PAGE
    assert socket._START == socket_server.ANSWER == 5


def test_the_statuses_that_mean_that_a_call_did_not_start_are_all_there() -> None:
    (row,) = [each for each in PAGE.splitlines() if "before any output" in each]
    named = set(re.findall(r"`([A-Z_]+)`", row)) | {"NOT_FOUND"}
    assert named == {code.name for code in socket_said._DID_NOT_START}


def test_the_words_that_it_calls_capabilities_are_those_that_a_daemon_knows() -> None:
    (_, table) = PAGE.split("## 8. What is optional")
    first = [each.split("|")[1] for each in table.splitlines() if each.startswith("| `")]
    named = {word for each in first for word in re.findall(r"`([a-z_]+)`", each)}
    assert named == set(socket_said.KNOWN)


def test_what_hand_toml_is_to_say_is_toml_and_the_unit_goes_before_the_daemons() -> None:
    for text in snippets("toml"):
        assert list(tomllib.loads(text)) == ["sockets"]
    (ini,) = snippets("ini")
    at = tomllib.loads(snippets("toml")[-1])["sockets"]["counter"]
    assert at in ini
    assert f"RuntimeDirectory={Path(at).parent.name}\n" in ini
    assert "Before=carpal-hand.service" in ini
    assert "hand run" in " ".join(unit._command(unit.Unit(("carpal",))))


async def test_the_commands_that_it_shows_are_commands(tmp_path: Path) -> None:
    command = Command(tmp_path)
    lines = [line for text in snippets("") for line in text.splitlines()]
    for line in lines:
        program, *words = shlex.split(line)
        if program == "carpal":
            given = [each for each in words if each.startswith("--")]
            named = [each for each in words[:2] if each.isalpha()]
            names = named[:1] if named[0] in {"dev", "run"} else named
            ended = await command(*names, "--help")
            assert ended.code == 0, line
            assert all(each in ended.stdout for each in given), line


def test_what_a_failed_check_looks_like_is_what_the_checks_say() -> None:
    from hands.conformance.hand import _OFFSET
    from hands.conformance.suite import CHECKS

    fail, change = snippets("text")[0].splitlines()
    assert any(check.sentence in fail for check in CHECKS)
    assert change.strip() == f"change: {_OFFSET}"
