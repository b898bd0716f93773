"""A brain that freezes in the middle of a call: its daemon and session find another unaided."""

import os
import signal
from pathlib import Path

import pytest

from carpal.v1 import orchestrator_pb2
from tests.interaction.play import HELD, SECONDS, let_go, one_effect, pipes, session, started
from tests.pace import SCALE
from tests.world import World, world

HEARTBEAT = 0.5 * SCALE
"""Seconds; three of them are the limit of silence."""
TERM = 2.0 * SCALE


async def linked_at(it: World, asked: str) -> str:
    """Name of the brain that has the daemon's link, as another says; empty when none has."""
    async with it.orchestrator(asked) as stub:
        request = orchestrator_pb2.ListDaemonsRequest()
        (told,) = (await stub.ListDaemons(request, timeout=SECONDS)).daemons
    return told.brain if told.state == "connected" else ""


@pytest.mark.slow
async def test_a_brain_that_freezes_is_left_by_its_daemon_and_its_session_and_does_no_harm_l01_s07(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARPAL_HEARTBEAT", str(HEARTBEAT))
    work = pipes(tmp_path / "work")
    async with (
        world(tmp_path / "state", brains=("b1", "b2"), term=TERM) as it,
        session(it, HELD, work) as made,
    ):
        await started(work)
        frozen = await linked_at(it, "b1")
        other = {"b1": "b2", "b2": "b1"}[frozen]
        os.kill(it.running[frozen].pid, signal.SIGSTOP)
        await let_go(work)
        await made.until_type("session.status_idle")
        one_effect(work, made)
        assert [each["outcome"] for each in made.data("agent.tool_result")] == ["ok"]
        assert await linked_at(it, other) == other
        os.kill(it.running[frozen].pid, signal.SIGCONT)
        said = await made.say("$ echo again")
        await made.until_type("session.status_idle", after=said.position)
        assert made.results()[-1].startswith("again")
        assert "nothing came for" in it.running["daemon"].log.read_text()
