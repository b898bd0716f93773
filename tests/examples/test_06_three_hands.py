"""The example's session reads in a browser, reckons in a container and wins in an emulator."""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from PIL import Image

from hands.emulator import screen
from tests import engine as engines
from tests import images
from tests.command import ROOT
from tests.examples.foreign import run
from tests.hands.browser.parts import needs_browser
from tests.interaction.player import seen
from tests.pace import SCALE
from tests.test_dev import dev

HERE = ROOT / "examples" / "06_three_hands"
README = (HERE / "README.md").read_text(encoding="utf-8")
MISSING = engines.missing()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def line(begin: str) -> str:
    """The one line of the README's commands that begins so."""
    (found,) = [
        each for each in README.splitlines() if each == begin or each.startswith(f"{begin} ")
    ]
    return found


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[int]:
    """A folder's pages, by the program of the README, on a port that is free; which one."""
    _, *arguments, _ = shlex.split(line("python3 -m http.server"))
    arguments[arguments.index("--directory") + 1] = str(folder)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", *arguments, "0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20 * SCALE):
            said = (await process.stdout.readline()).decode()
        yield int(re.findall(r"port (\d+)", said)[0])
    finally:
        process.kill()
        await process.wait()


def copied(to: Path, port: int) -> Path:
    """The example, with another port and an image of the tests."""
    to.mkdir()
    for path in HERE.iterdir():
        text = path.read_text(encoding="utf-8").replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        (to / path.name).write_text(text.replace("debian:12", images.SHELL), encoding="utf-8")
    return to


@needs_browser
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
async def test_one_session_uses_a_container_a_browser_and_an_emulator_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = tmp_path / "square.gb"
    making = line("python3 -m tests.cartridge").replace("/tmp/square.gb", str(game))
    await run("sh", "-c", making.replace("python3", sys.executable), cwd=ROOT)
    with engines.engine() as engine:
        images.add_shell(engine.client)
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        async with served(tmp_path / "example") as port:
            here = copied(tmp_path / "example", port)
            async with dev(tmp_path, "--script", str(here / "script.yaml")) as up:
                words, _, task = line("carpal run").partition(" < ")
                given = words.replace("examples/06_three_hands", str(here))
                given = given.replace("/tmp/square.gb", str(game))
                text = (here / Path(task).name).read_text(encoding="utf-8")
                _, *arguments = shlex.split(given)
                async with (
                    up.carpal.start(*arguments, "--json") as process,
                    asyncio.timeout(120 * SCALE),
                ):
                    out, error = await process.communicate(text.encode())
                assert process.returncode == 0, error.decode()
                session = json.loads(out)["session_id"]
                shown = await up.carpal("session", "show", session, "--json")
                told = await up.carpal("session", "tail", session, "--no-follow", "--json")
                listed = await up.carpal("session", "attachments", session)
                kept = tmp_path / "pictures"
                saved = await up.carpal(
                    "session", "attachments", session, "--out", str(kept), "--json"
                )
    assert {hand["type"] for hand in json.loads(shown.stdout)["hands"]} == {
        *("container", "browser", "emulator")
    }
    events = [json.loads(each) for each in told.stdout.splitlines()]
    results = [e["data"]["content"][0]["text"] for e in events if e["type"] == "agent.tool_result"]
    _, page, _, way, *played, memory = results
    assert "The block moves one pixel" in page
    assert way == "right 96, down 64\n"
    assert memory == "C000: 40 60 00 01"
    assert len(played) == 5
    assert listed.stdout.count("image/png") == 2
    files = [json.loads(each)["file"] for each in saved.stdout.splitlines()]
    browser, console = [kept / Path(each).name for each in files]
    with Image.open(browser) as picture:
        assert picture.size == (1280, 800)
    with Image.open(console) as picture:
        assert picture.size == screen.SIZE
    assert seen(console.read_bytes()).won
