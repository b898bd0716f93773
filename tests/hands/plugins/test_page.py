"""Every snippet of docs/how-to/write-a-hand-type.md does what the page says of it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.process import interpreter
from carpal.v1 import hand_pb2 as pb
from hands.controls import Key
from hands.inside import view_frames
from hands.visit import screen
from tests.command import ROOT, Command
from tests.hands.plugins.found import installed
from tests.hands.plugins.test_views import person
from tests.hands.plugins.written import Plugins, probe
from tests.pace import SCALE

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


def run(line: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A line of a shell snippet, in a folder; pip, whose work is done otherwise, aside."""
    program, *arguments = shlex.split(line, comments=True)
    command = {"carpal": interpreter(), "python": [sys.executable]}[program]
    return subprocess.run(
        [*command, *arguments],
        check=False,
        cwd=folder,
        env={**environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=50 * SCALE,
    )


def test_each_snippet_of_the_page_is_known_to_these_tests() -> None:
    assert [each for each, _ in SNIPPETS] == [
        *(
            "sh",
            "text",
            "toml",
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


def test_the_first_lines_make_a_type_and_call_it(tmp_path: Path) -> None:
    first, output = snippets("sh")[0], snippets("text")[0]
    environ = dict(Command(tmp_path).environ)
    for line in first.splitlines():
        if line == "pip install -e lamp pytest":
            environ["PYTHONPATH"] += os.pathsep + installed(tmp_path / "lamp", tmp_path)
            continue
        done = run(line, tmp_path, environ)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert done.stdout == output


def test_the_example_is_shown_whole_and_registered_as_it_is() -> None:
    assert snippets("python")[0] == (EXAMPLE / "ledger.py").read_text()
    assert len(snippets("python")[0].splitlines()) < 40
    assert snippets("toml")[0] in (EXAMPLE / "pyproject.toml").read_text()


def test_a_hint_that_is_none_is_said_as_the_page_says_it(tmp_path: Path) -> None:
    folder = tmp_path / "scale"
    folder.mkdir()
    (folder / "scale.py").write_text(WRONG)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "scale"\nversion = "0"\n'
        '[project.entry-points."carpal.hand_types"]\nscale = "scale:Scale"\n'
    )
    environ = Command(tmp_path).environ
    environ["PYTHONPATH"] += os.pathsep + installed(folder, tmp_path)
    done = run("carpal hand call scale weigh", tmp_path, environ)
    assert done.returncode == 3
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


def test_the_protos_are_written(tmp_path: Path) -> None:
    done = run(snippets("sh")[1], tmp_path, Command(tmp_path).environ)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "protos" / "carpal" / "v1" / "hand.proto").exists()


def test_the_lines_that_check_are_lines_of_the_command(tmp_path: Path) -> None:
    """The checks themselves are made elsewhere: of the example, by its own test."""
    for line in snippets("sh")[2].splitlines():
        done = run(f"{line.partition('#')[0]} --list", tmp_path, Command(tmp_path).environ)
        assert done.returncode == 0, (line, done.stderr)
