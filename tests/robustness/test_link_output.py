"""SIGKILL and SIGSTOP around large output: the call happens once and its result is the true one."""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hands.inside.output import Capture
from tests.faults import Action, stopped
from tests.hands.test_output import COUNT, counted
from tests.interaction.play import session
from tests.pace import times
from tests.robustness.link_world import ATTACH, MOMENTS, SECONDS, LinkWorld, link_world, send
from tests.robustness.test_link_steps import STILL
from tests.robustness.truth import Effects, check_calls, check_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEPS = [f"{frame}.{moment}" for frame in ATTACH for moment in MOMENTS]


@pytest.fixture(scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LinkWorld]:
    async with link_world(tmp_path_factory.mktemp("output") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """As everywhere, for as long as a world lasts."""
    return "asyncio", {"use_uvloop": False}


async def test_who_dies_or_stands_still_while_output_flows_costs_nothing_of_the_result_l22_s08(
    it: LinkWorld, tmp_path: Path, chance: random.Random
) -> None:
    cases: list[tuple[str, Action]] = [(p, a) for p in STEPS for a in ("kill", "stop")]
    chance.shuffle(cases)
    for point, action in cases[: times(3, len(cases))]:
        try:
            await _case(it, Effects(tmp_path / f"{point}.{action}"), point, action)
        except Exception as error:
            error.add_note(f"at {action} {point}")
            raise


async def _case(it: LinkWorld, effects: Effects, point: str, action: Action) -> None:
    it.points.arm(point, action)
    async with session(it.it, f"{effects.command('one')}; {COUNT}") as made:
        pid = await it.points.reached(point, SECONDS)
        if action == "stop":
            await stopped(pid, SECONDS)
            await asyncio.sleep(STILL)  # how long it stands still is the fault
            send(pid, signal.SIGCONT)
        await it.mend()
        await made.until_type("session.status_idle", seconds=SECONDS)
        check_log(made.session_id, made.log)
        check_calls(made.log, effects, ["one"], all_ok=True)
        [told] = [json.loads(e.data) for e in made.log if e.type == "agent.tool_result"]
        capture = Capture()
        capture.add(f"did one {effects.of('one')[0][0]}\n".encode() + counted())
        assert told["content"][0]["text"].startswith(capture.text()[0])
