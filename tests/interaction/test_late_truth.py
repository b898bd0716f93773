"""The daemon, for ever or almost: `interrupted` after the deadline, and the truth when it comes."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults import supervisors
from tests.hands.place import until
from tests.interaction.play import HELD, let_go, pipes, session, started
from tests.leftovers import nothing_orphaned
from tests.pace import SCALE
from tests.world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]  # worlds, and deadlines of seconds

HEARTBEAT = 1.0 * SCALE
DEADLINE = 4.0 * SCALE
"""Of hands, here: a daemon and a brain that are well are heard more often."""


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    """A world whose brain gives a hand up soon."""
    async with world(tmp_path / "state") as running:
        await running.running["b1"].kill()
        running.environ |= {
            "CARPAL_HEARTBEAT": str(HEARTBEAT),
            "CARPAL_ORPHAN_MARGIN": str(HEARTBEAT),
        }
        await running.brain("b1")
        yield running


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where calls work."""
    return pipes(tmp_path / "work")


async def _gone(supervisor: int) -> None:
    await until(lambda: not Path(f"/proc/{supervisor}").exists(), "it outlived its deadline")


async def test_a_daemon_that_comes_back_after_it_was_given_up_tells_the_truth_and_the_model_hears(
    it: World, work: Path
) -> None:
    """Nobody drives the session by then: it is woken, and the model told."""
    daemon = it.running["daemon"].pid
    async with session(it, HELD, work, orphan_deadline=DEADLINE) as made:
        await started(work)
        (supervisor,) = supervisors(it.state / "hand" / "hands")
        os.kill(daemon, signal.SIGSTOP)
        try:
            await let_go(work)  # the call ends well; nobody is there to hear it
            await made.until_type("session.status_idle")
            (told,) = made.data("agent.tool_result")
            assert (told["outcome"], told["given_up"]) == ("interrupted", True)
            assert "may have partly happened" in told["content"][0]["text"]
            assert made.data("hand.lost")
            await until(
                lambda: not Path(f"/proc/{supervisor}").exists(), "it outlived its deadline"
            )
        finally:
            os.kill(daemon, signal.SIGCONT)
        late = await made.until_type("hand.late_result")
        truth = json.loads(late.data)
        assert truth["outcome"] == "ok"
        (effect,) = (work / "effects").read_text().splitlines()
        assert effect in truth["content"][0]["text"]
        assert made.data("hand.event")[0]["kind"] == "returned"
        await made.until_type("session.status_idle", after=late.position)
        asked = [e for e in made.log if e.type == "span.model_request_start"]
        assert asked[-1].position > late.position, "the model was not told"
        assert len(made.data("hand.late_result")) == 1
    await nothing_orphaned(it.state / "hand")


async def test_a_daemon_gone_for_ever_leaves_interrupted_and_a_session_that_goes_on(
    it: World, work: Path
) -> None:
    async with session(it, HELD, work, orphan_deadline=DEADLINE) as made:
        await started(work)
        (supervisor,) = supervisors(it.state / "hand" / "hands")
        await it.running["daemon"].kill()
        idle = await made.until_type("session.status_idle")
        (told,) = made.data("agent.tool_result")
        assert told["outcome"] == "interrupted"
        assert "may have partly happened" in told["content"][0]["text"]
        await _gone(supervisor)
        assert not (work / "effects").exists()
        await it.daemon()
        await made.say("$ echo on a new hand")
        await made.until_type("session.status_idle", after=idle.position)
        assert made.results()[-1].startswith("on a new hand")
        assert len(made.data("hand.provisioned")) == 2
    await nothing_orphaned(it.state / "hand")


async def test_a_daemon_killed_with_its_supervisor_leaves_interrupted_and_a_dead_tree(
    it: World, work: Path
) -> None:
    task = "$ setsid sleep 61 & echo > started; sleep 60\n$ echo on a new hand"
    async with session(it, task, work) as made:
        await started(work)
        (supervisor,) = supervisors(it.state / "hand" / "hands")
        await it.running["daemon"].kill()
        os.kill(supervisor, signal.SIGKILL)
        await it.daemon()
        await made.until_type("session.status_idle")
        first, second = made.data("agent.tool_result")
        assert first["outcome"] == "interrupted"
        assert "may have partly happened" in first["content"][0]["text"]
        assert second["outcome"] in ("ok", "lost")
    await nothing_orphaned(it.state / "hand")
