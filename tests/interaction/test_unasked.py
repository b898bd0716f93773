"""What a hand says unasked is in the log once, whoever is killed; and wakes who wants to hear."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults import Points
from tests.hands.plugins.found import installed
from tests.interaction.play import SECONDS, Session, session
from tests.world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]  # worlds

PHONE = '''
import threading, time
from hands.api import Context, HandType, tool

class Phone(HandType):
    """A phone."""

    @tool()
    def bash(self, context: Context, command: str) -> str:
        """Watch a file: each line of it is told."""
        def look() -> None:
            done = 0
            while True:
                try:
                    lines = open(command).read().splitlines(True)
                except OSError:
                    lines = []
                for line in lines[done:]:
                    context.event("battery", {"left": line.strip()}, f"e{done}")
                    done += 1
                time.sleep(0.02)
        threading.Thread(target=look, daemon=True).start()
        return "watching"
'''


@pytest.fixture(scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world of two brains, whose daemon has such a type."""
    folder = tmp_path_factory.mktemp("phone")
    project = folder / "project"
    project.mkdir()
    (project / "phone.py").write_text(PHONE)
    (project / "pyproject.toml").write_text(
        '[project]\nname = "phone"\nversion = "1"\n'
        '[project.entry-points."carpal.hand_types"]\nphone = "phone:Phone"\n'
    )
    path = os.pathsep.join((installed(project, folder), os.environ.get("PYTHONPATH", "")))
    points = Points(folder / "points")
    settings = {"PYTHONPATH": path, **points.environ}
    async with world(folder / "state", brains=("b1", "b2"), environ=settings) as running:
        yield running


@pytest.fixture
def points(it: World) -> Points:
    """Where processes of the world are killed."""
    return Points(Path(it.environ["CARPAL_FAULTS"]))


@asynccontextmanager
async def watching(it: World, file: Path, events: object) -> AsyncIterator[Session]:
    """A session that is idle, whose phone says each line of a file."""
    plays = {"type": "phone", "events": events}
    async with session(it, f"$ {file}", hands=("phone",), hand=plays) as made:
        await made.until_type("session.status_idle")
        assert made.results() == ["watching"], made.text()
        yield made


def _say(file: Path, line: str) -> None:
    with file.open("a") as to:
        to.write(f"{line}\n")


async def _told(made: Session, count: int) -> list[dict[str, Any]]:
    """The events of the hand in the log, once there are as many."""
    await made.until(lambda _: len(made.data("hand.event")) >= count)
    return made.data("hand.event")


async def test_what_a_hand_says_wakes_an_agent_that_wants_to_hear_and_the_model_is_told(
    it: World, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    async with watching(it, file, ["battery"]) as made:
        head = made.log[-1].position
        _say(file, "3%")
        (told,) = await _told(made, 1)
        assert (told["name"], told["kind"], told["data"]) == ("phone", "battery", {"left": "3%"})
        await made.until_type("agent.message", head)
        await made.until_type("session.status_idle", head)
        event = next(e for e in made.log if e.type == "hand.event")
        assert event.source.endswith(("/b1", "/b2"))


async def test_what_no_agent_asked_for_is_in_the_log_and_wakes_nobody(
    it: World, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    async with watching(it, file, ["heat"]) as made:
        head = made.log[-1].position
        _say(file, "3%")
        await _told(made, 1)
        await made.say("and now?")
        await made.until_type("session.status_idle", head + 2)
        asked = [e for e in made.log if e.type == "span.model_request_start" and e.position > head]
        assert len(asked) == 1, made.text()


@pytest.mark.parametrize(
    "step",
    [
        "daemon.event.before_heard",
        "daemon.event.heard",
        "daemon.reply_events.written",
        "brain.event.before_written",
        "brain.event.written",
        "daemon.event.before_acknowledged",
        "daemon.event.acknowledged",
    ],
)
async def test_whoever_is_killed_at_a_step_the_log_has_it_once(
    it: World, points: Points, tmp_path: Path, step: str
) -> None:
    file = tmp_path / "lines"
    async with watching(it, file, True) as made:
        points.arm(step, "kill")
        _say(file, "first")
        (pid,) = [await points.reached(step, SECONDS)]
        name = next(name for name, each in it.running.items() if each.pid == pid)
        await it.running[name].process.wait()
        await (it.daemon() if name == "daemon" else it.brain(name))
        _say(file, "second")
        told = await _told(made, 2)
        assert [each["data"]["left"] for each in told] == ["first", "second"], made.text()
        await made.until(lambda _: _idle(made))
        assert len(made.data("hand.event")) == 2, made.text()


def _idle(made: Session) -> bool:
    """Both were told, and answered."""
    last = max(e.position for e in made.log if e.type == "hand.event")
    return any(e.type == "session.status_idle" and e.position > last for e in made.log)
