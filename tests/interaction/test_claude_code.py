"""Kill the brain under Claude Code: another goes on, the call happened once, nothing is left."""

import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.faults import Points
from tests.hands.place import until
from tests.interaction.play import HELD, let_go, one_effect, pipes, session, started
from tests.pace import SCALE
from tests.world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
LONG = 90.0 * SCALE
"""Seconds for a lease to end, and for a brain and Claude Code to start on a loaded machine."""


@pytest.fixture
async def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    if find_spec("claude_agent_sdk") is None:
        pytest.skip("Claude Code is not here: the extra `claude-code` brings it")
    homes = tmp_path / "homes"
    homes.mkdir()
    monkeypatch.setenv("TMPDIR", str(homes))
    environ = Points(tmp_path / "points").environ
    term = 2.0 * SCALE
    async with world(tmp_path / "state", brains=("b1", "b2"), term=term, environ=environ) as up:
        yield up


def programs(folder: Path) -> list[int]:
    """Processes of Claude Code that live in a folder there."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and int(each.name) != os.getpid():
            try:
                named = f"CLAUDE_CONFIG_DIR={folder}".encode() in (each / "environ").read_bytes()
            except OSError:
                continue
            if named:
                found.append(int(each.name))
    return found


async def test_a_brain_killed_in_the_middle_of_a_call_is_replaced_and_the_call_runs_once(
    it: World, tmp_path: Path
) -> None:
    work = pipes(tmp_path / "work")
    async with session(it, HELD, work, agent={"harness": "claude_code"}) as made:
        await started(work)
        (program,) = programs(tmp_path / "homes")
        killed = await made.driver()
        await it.running[killed].kill()
        homes = tmp_path / "homes"
        await until(lambda: program not in programs(homes), "it outlived its brain")
        await let_go(work)
        idle = await made.until_type("session.status_idle", seconds=LONG)
        one_effect(work, made)
        assert made.data("session.status_idle")[-1]["stop_reason"] == {"type": "end_turn"}
        drivers = {e.source for e in made.log if e.type.startswith(("agent.", "span."))}
        assert len(drivers) == 2, made.text()
        # One question before the kill, one after it: none was asked or paid twice.
        starts = made.data("span.model_request_start")
        assert [start["policy"] for start in starts] == ["given/1"] * 2, made.text()
        assert made.data("session.error") == [], made.text()
        assert "context.conversation_retold" not in {e.type for e in made.log}
        await made.say("and what was that?")
        await made.until_type("session.status_idle", idle.position, LONG)
    assert programs(tmp_path / "homes") == []
    assert list((tmp_path / "homes").glob("carpal-claude-code-*")) == []


@pytest.mark.parametrize(
    ("point", "questions"),
    [
        ("brain.request.started", 3),  # the one that nobody answered is asked again
        ("brain.intent.appended", 2),  # its reply is in the log, and Claude Code was not told
        ("brain.result.before_appended", 2),  # the call ran, and nobody noted it
    ],
)
async def test_a_brain_killed_at_a_step_is_replaced_and_what_was_done_is_not_done_again(
    it: World, tmp_path: Path, point: str, questions: int
) -> None:
    points = Points(tmp_path / "points")
    points.arm(point, "kill")
    work = tmp_path / "work"
    work.mkdir()
    agent = {"harness": "claude_code"}
    async with session(it, "$ echo once >> mark", work, agent=agent) as made:
        await made.until_type("session.status_idle", seconds=LONG)
        assert not points.disarm(point), f"nobody came by it:\n{made.text()}"
        assert made.data("session.status_idle")[-1]["stop_reason"] == {"type": "end_turn"}
        drivers = {e.source for e in made.log if e.type.startswith(("agent.", "span."))}
        assert len(drivers) == 2, made.text()
        assert len(made.data("span.model_request_start")) == questions, made.text()
        assert len(made.data("agent.tool_result")) == 1, made.text()
    assert (work / "mark").read_text() == "once\n"
    assert programs(tmp_path / "homes") == []
