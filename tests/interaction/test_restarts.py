"""sessiond is killed again and again while a session runs: a pause, and nothing else, to anyone.

Not to the brains, nor to the person who runs the task, nor to the one who looks on.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import session_pb2
from carpal.verified import Verified
from tests.command import Command
from tests.interaction.play import SECONDS, let_go, pipes, started
from tests.pace import times
from tests.robustness.ledger import whole
from tests.world import World, world

CALL = '$ cd {work}; echo > started; read x < go; echo "effect $(date +%s%N)-$$" | tee -a effects'
CALLS = times(3, 20)


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "state", brains=("b1", "b2")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_to_a_brain_and_to_people_a_restart_of_sessiond_is_a_pause_and_nothing_else(
    it: World, tmp_path: Path
) -> None:
    works = [pipes(tmp_path / f"work{number}") for number in range(CALLS)]
    task = "\n".join(CALL.format(work=work) for work in works)
    carpal = Command(tmp_path)
    where = ("--state-dir", str(it.state), "--sessiond", it.running["sessiond"].facts["address"])
    async with asyncio.timeout(CALLS * SECONDS), carpal.start("run", *where, task) as person:
        assert person.stdout is not None
        session_id = (await person.stdout.readline()).decode().split()[-1]
        async with carpal.start("session", "tail", *where, "--json", session_id) as onlooker:
            assert onlooker.stdout is not None
            first = await onlooker.stdout.readline()  # from here on it follows
            for number, work in enumerate(works):
                await started(work)
                # By turns in the middle of a call, as it ends, and with a signal that asks.
                if number % 3 == 0:
                    await it.running["sessiond"].kill()
                    await let_go(work)
                elif number % 3 == 1:
                    await let_go(work)
                    await it.running["sessiond"].kill()
                else:
                    await it.running["sessiond"].kill(signal.SIGTERM)
                    await let_go(work)
                await it.sessiond()
            said, complaints = await person.communicate()
            seen, why = await onlooker.communicate()
        assert person.returncode == 0, said.decode() + complaints.decode()
        assert onlooker.returncode == 0, why.decode()
        async with it.sessions() as stub:
            log = await whole(stub, session_id)
            got = await stub.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
    chain = Verified(session_id)
    for event in log:
        chain.take(event)
    chain.end(got.session.head)
    kinds = [event.type for event in log]
    assert "session.error" not in kinds
    assert json.loads(log[-1].data)["stop_reason"]["type"] == "end_turn"
    assert kinds.count("session.status_idle") == 1, "it was one turn"
    results = [json.loads(e.data) for e in log if e.type == "agent.tool_result"]
    effects = [(work / "effects").read_text().splitlines() for work in works]
    assert [len(lines) for lines in effects] == [1] * CALLS, "each happened once"
    assert [r["content"][0]["text"].splitlines()[0] for r in results] == [e[0] for e in effects]
    positions = [json.loads(line)["position"] for line in [first, *seen.splitlines()]]
    assert positions == list(range(1, len(log) + 1)), "the onlooker missed or repeated something"
