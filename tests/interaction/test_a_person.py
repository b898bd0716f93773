"""A person decides and pays: calls wait through any death, and no session outspends its limits."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.v1 import session_pb2
from tests.command import Command
from tests.interaction.play import SECONDS, Session
from tests.pace import SCALE
from tests.world import World, world

TERM = 2.0 * SCALE
"""Seconds of a lease here."""
EFFECT = '$ echo "effect $(date +%s%N)-$$" | tee -a effects'
CAREFUL = """\
name: careful
model: practice
hands:
  shell:
    type: process
    config: {{workspace: {work}}}
permissions: {{tools: {{bash: always_ask}}}}
"""


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "state", brains=("b1", "b2"), term=TERM) as running:
        yield running


@pytest.fixture
def carpal(it: World, tmp_path: Path) -> Command:
    """The command, as the world's operator."""
    addresses = {
        f"CARPAL_{name.upper()}": it.running[name].facts["address"]
        for name in ("sessiond", "vault")
    }
    return Command(tmp_path, {"CARPAL_STATE": str(it.state), **addresses})


@asynccontextmanager
async def followed(it: World, session_id: str) -> AsyncIterator[Session]:
    async with it.sessions() as stub:
        made = Session(session_id, stub)
        following = asyncio.create_task(made.follow())
        try:
            yield made
        finally:
            following.cancel()
            await asyncio.wait({following})


async def linked(it: World, after: int = 0) -> int:
    """The epoch of the daemon's link, once it is above one: a hand is not waited for for ever."""
    async with it.sessions() as stub, asyncio.timeout(SECONDS):
        async for answer in stub.WatchLeases(session_pb2.WatchLeasesRequest(prefix="daemon/")):
            for lease in answer.leases:
                if lease.epoch > after and lease.HasField("expires_in"):
                    return lease.epoch
    raise AssertionError("a watch has no end")


def workspace(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    if os.geteuid() == 0:
        os.chown(work, 65534, 65534)  # root's files are no hand's
    return work


def stops(made: Session) -> list[str]:
    return [data["stop_reason"]["type"] for data in made.data("session.status_idle")]


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_call_that_waits_outlives_every_brain_and_runs_once_when_it_is_allowed(
    it: World, carpal: Command, tmp_path: Path
) -> None:
    work = workspace(tmp_path)
    kept = await carpal("agent", "create", "-", stdin=CAREFUL.format(work=work))
    assert kept.code == 0, kept.stderr
    ran = await carpal("run", EFFECT, "--agent", "careful")
    assert ran.code == 10, ran.stderr
    session_id = ran.stdout.split()[1]
    assert not list(work.iterdir()), "nothing ran"
    after = await linked(it)
    for name in ("b1", "b2"):
        await it.running[name].kill()
    await it.brain("b1")
    await linked(it, after)
    approved = await carpal("session", "approve", session_id)
    assert approved.code == 0, approved.stderr
    async with followed(it, session_id) as made:
        await made.until(lambda e: e.type == "session.status_idle" and b"end_turn" in e.data)
        assert stops(made) == ["requires_action", "end_turn"]
        effects = (work / "effects").read_text(encoding="utf-8").splitlines()
        assert [text.splitlines()[0] for text in made.results()] == effects
        assert len(effects) == 1
        agent = json.loads(made.log[0].data)["agent"]
        assert (agent["name"], agent["version"]) == ("careful", 1)
    again = await carpal("session", "approve", session_id)
    assert again.code == 5


async def test_a_session_at_its_limit_goes_on_where_it_was_once_that_is_raised(
    it: World, carpal: Command, tmp_path: Path
) -> None:
    agent = tmp_path / "poor.yaml"
    agent.write_text("model: practice\nlimits: {model_requests: 1}\n")
    ran = await carpal("run", "$ echo hello", "--agent", str(agent))
    assert ran.code == 11, ran.stderr
    session_id = ran.stdout.split()[1]
    raised = await carpal("session", "limits", session_id, "--model-requests", "5", "--json")
    assert json.loads(raised.stdout)["spent"]["model_requests"] == 1
    async with followed(it, session_id) as made:
        await made.until(lambda e: e.type == "session.status_idle" and b"end_turn" in e.data)
        assert stops(made) == ["budget_reached", "end_turn"]
        assert len(made.results()) == 1, "what was done is not done again"
        assert made.data("session.status_idle")[-1]["spent"]["model_requests"] == 2
