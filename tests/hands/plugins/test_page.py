"""Every snippet of docs/how-to/write-a-hand-type.md does what the page says of it."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from brain.hands.provision import PATIENCE
from carpal.errors import CarpalError
from carpal.v1 import hand_pb2 as pb
from hands.conformance.changes import CHANGES
from hands.conformance.suite import CHECKS
from hands.controls import Key
from hands.inside import view_frames
from hands.visit import view_state as screen
from tests.command import ROOT, Command
from tests.hands.hand_server import Least, serving
from tests.hands.plugins.found import installed
from tests.hands.plugins.test_screen_server import person
from tests.hands.plugins.written import Plugins, probe
from tests.pace import SCALE
from tests.reader import Reader

PAGE = (ROOT / "docs" / "how-to" / "write-a-hand-type.md").read_text()
EXAMPLE = ROOT / "examples" / "02_write_a_hand_type"
SNIPPETS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
WRONG = """
from hands.api import HandType, tool

class Scale(HandType):
    'A scale.'
    @tool()
    def weigh(self, load: complex) -> str:
        'Weigh it.'
        return ''
"""


def snippets(language: str) -> list[str]:
    """Those of one language, in order."""
    return [text for each, text in SNIPPETS if each == language]


def test_each_snippet_of_the_page_is_known_to_these_tests() -> None:
    assert [each for each, _ in SNIPPETS] == [
        *(
            "sh",
            "text",
            "toml",
            "yaml",
            "sh",
            "python",
            "text",
            "python",
            "sh",
            "toml",
            "sh",
            "",
            "python",
            "python",
        ),
    ]


async def test_the_lamp_is_seen_and_switched_by_a_person_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = Plugins(tmp_path / "plugins", monkeypatch)
    source = snippets("python")[2] + "\n\nIt = Lamp\n"
    async with plugins.place(plugins.write("lamp", source)) as place:
        hand = await place.hand(type="lamp")
        async with person(place, hand) as watches:
            dark = screen.picture(view_frames.PNG, await watches.sees())
            async with person(place, hand, "control") as controlling:
                await controlling.does(Key("a", down=True))
                assert screen.picture(view_frames.PNG, await watches.sees()) != dark
        assert (await place.run(hand, "look")).content == "lit"


async def test_the_phone_is_one_hands_at_a_time_and_reset_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    rack = tmp_path / "home" / "rack"
    (rack / "pixel-1").mkdir(parents=True)
    plugins = Plugins(tmp_path / "plugins", monkeypatch)
    source = snippets("python")[3].replace("Path.home()", repr(tmp_path / "home"))
    source = source.replace("PosixPath", "Path")
    async with plugins.place(plugins.write("phone", source + "\n\nIt = Phone\n")) as place:
        hand = await place.hand(type="phone", unit={"os": "android"})
        assert (await place.run(hand, "send", text="hello")).content == "sent"
        assert (rack / "pixel-1" / "messages").read_text() == "hello\n"
        with pytest.raises(CarpalError, match="1 held"):
            await place.hand(type="phone")
        (rack / "pixel-1" / "broken").touch()
        assert await place.release(hand)
        (info,) = place.inventory.units.infos("phone")
        assert info.reason == "its reset failed: its screen is broken"


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_the_phone_passes_the_checks_of_the_contract_with_two_in_the_rack(
    tmp_path: Path,
) -> None:
    for name in ("pixel-1", "pixel-2"):
        (tmp_path / "home" / "rack" / name).mkdir(parents=True)
    folder = tmp_path / "phone"
    folder.mkdir()
    (folder / "phone.py").write_text(snippets("python")[3])
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "phone"\nversion = "0.1"\n'
        '[project.entry-points."carpal.hand_types"]\nphone = "phone:Phone"\n'
    )
    command = Command(tmp_path, {"HOME": str(tmp_path / "home"), "CARPAL_SANDBOX": "off"})
    command.environ["PYTHONPATH"] += os.pathsep + installed(folder, tmp_path)
    call = ("--call", "send", '{"text": "hello"}')
    flags = ("--type", "phone", *call, "--only", "contract", "--only", "units")
    async with (
        command.start("hand", "check", "--scale", str(2 * SCALE), *flags) as process,
        asyncio.timeout(270 * SCALE),
    ):
        stdout, stderr = await process.communicate()
    said = stdout.decode().splitlines()
    assert (process.returncode, stderr) == (0, b""), [*said, stderr]
    assert any(line.startswith("pass     units: ") for line in said)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_first_lines_make_a_type_install_it_test_it_and_call_it(tmp_path: Path) -> None:
    said = Reader(tmp_path).types(snippets("sh")[0])
    assert "4 passed" in said
    assert said.endswith(snippets("text")[0])


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_without_a_key_an_agent_greets_by_the_script_of_the_page_also_beside_a_shell(
    tmp_path: Path,
) -> None:
    reader = Reader(tmp_path)
    reader.types("\n".join(snippets("sh")[0].splitlines()[:2]))
    (script,) = snippets("yaml")
    reader.write("script.yaml", script)
    dev, run = snippets("sh")[1].splitlines()
    async with reader.runs_dev(dev):
        said = await asyncio.to_thread(reader.types, run)
    assert "Welcome, Ada." in said
    assert "She was greeted." in said
    (hands,) = re.findall(r"`((?:--hand \w+=\w+ ?)+)`", PAGE)
    reader.write("script.yaml", script.replace("greet,", "lamp__greet,"))
    async with reader.runs_dev(dev):
        run = run.replace("--hand lamp=lamp", hands)
        assert "Welcome, Ada." in await asyncio.to_thread(reader.types, run)


def test_how_long_a_unit_is_waited_for_is_as_long_as_the_page_says() -> None:
    assert f"asked for again for {PATIENCE:g} seconds" in PAGE


def test_the_example_is_shown_whole_and_registered_as_it_is() -> None:
    assert snippets("python")[0] == (EXAMPLE / "ledger.py").read_text()
    assert len(snippets("python")[0].splitlines()) < 40
    assert snippets("toml")[0] in (EXAMPLE / "pyproject.toml").read_text()


async def test_a_hint_that_is_none_is_said_as_the_page_says_it(tmp_path: Path) -> None:
    folder = tmp_path / "scale"
    folder.mkdir()
    (folder / "scale.py").write_text(WRONG)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "scale"\nversion = "0"\n'
        '[project.entry-points."carpal.hand_types"]\nscale = "scale:Scale"\n'
    )
    command = Command(tmp_path)
    command.environ["PYTHONPATH"] += os.pathsep + installed(folder, tmp_path)
    done = await command("hand", "call", "scale", "weigh")
    assert done.code == 3
    assert snippets("text")[1].strip() in done.stderr


async def test_the_bench_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = Plugins(tmp_path / "plugins", monkeypatch)
    bench = plugins.write("bench", snippets("python")[1] + "\n\nIt = Bench\n")
    async with plugins.place(bench) as place:
        assert (await probe(place, "bench")).state == pb.PROBE_STATE_READY
        hand = await place.hand(type="bench")
        turned = await place.steps(place.request(hand, "turn", times=2))
        assert b"".join(each.output.data for each in turned) == b"turn 1\nturn 2\n"
        assert turned[-1].result.content == "turned 2 times"
        assert (await place.run(hand, "cool", seconds=0.01)).content == "it is cool\n"
        looked = await place.run(hand, "look")
        assert looked.content.startswith("a picture of the bench is attached")
        turning = place.begin(place.request(hand, "turn", times=10**9))
        await turning.output()
        await place.service.cancel(
            pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=turning.call_id)
        )
        result = await turning.result()
        assert result.outcome == pb.OUTCOME_CANCELLED
        assert result.content.endswith("the motor stands still again\n[cancelled; stopped]")
        assert (await place.run(hand, "turn", times=1)).outcome == pb.OUTCOME_OK
        assert await place.release(hand)


async def test_a_server_is_a_type_by_the_contract_that_is_written_and_the_settings_that_name_it(
    tmp_path: Path,
) -> None:
    reader, at = Reader(tmp_path), tmp_path / "hand.sock"
    reader.types(snippets("sh")[2])
    assert (reader.folder / "protos" / "carpal" / "v1" / "hand.proto").exists()
    reader.write("hand.toml", snippets("toml")[1].replace("/run/ledger/hand.sock", str(at)))
    server = Least()
    server.info.type = "ledger"
    call = """carpal hand call --config hand.toml ledger say '{"text": "hello"}'"""
    async with serving(at, server):
        assert await asyncio.to_thread(reader.types, call) == "hello\n"


def test_each_line_that_checks_is_made_by_a_test_that_takes_it_from_the_page() -> None:
    words = [line.partition("#")[0].split()[3:5] for line in snippets("sh")[3].splitlines()]
    assert words == [
        ["--type", "process"],  # tests/hands/conformance/test_cli.py
        ["--type", "container"],  # tests/hands/container/test_conformance.py
        ["--type", "ledger"],  # tests/examples/test_02_write_a_hand_type.py
        ["--endpoint", "unix:///run/lab.sock"],  # below
    ]


@pytest.mark.slow
async def test_any_server_is_checked_by_the_line_of_the_page(tmp_path: Path) -> None:
    at = tmp_path / "lab.sock"
    line = next(line for line in snippets("sh")[3].splitlines() if "--endpoint" in line)
    line = line.partition("#")[0].replace("/run/lab.sock", str(at))
    async with serving(at, Least()):
        said = await asyncio.to_thread(Reader(tmp_path).types, line)
    verdicts = [each.split()[0] for each in said.splitlines() if not each.startswith(" ")]
    assert "pass" in verdicts
    assert "fail" not in verdicts


def test_what_checks_look_like_is_what_they_say() -> None:
    *lines, change = sorted(snippets("")[0].splitlines(), key=lambda line: line.startswith(" "))
    sentences = {check.sentence: check for check in CHECKS}
    *lines, skipped = lines
    assert re.fullmatch(r"skipped  (\d+ of [a-z]+, )*\d+ of [a-z]+   --verbose says .*", skipped)
    for line in lines:
        verdict, capability, rest = line.split(maxsplit=2)
        if verdict == "skipped":  # many in one line
            parts = line.removeprefix("skipped").partition("   --verbose")[0].split(", ")
            named = {part.split(" of ")[1].strip() for part in parts}
            assert named <= {check.capability for check in CHECKS}
            continue
        (said,) = [each for each in sentences if rest.startswith(each)]
        assert verdict in {"pass", "fail"}
        assert sentences[said].capability == capability.removesuffix(":")
    assert change.strip().removeprefix("change: ") in CHANGES.values()
