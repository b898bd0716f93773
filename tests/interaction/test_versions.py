"""A harness is replaced by its next version in the middle of a session, whatever it is at."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults import Points
from tests.interaction.harnesses import Installed
from tests.interaction.play import SECONDS, session
from tests.pace import SCALE
from tests.robustness.truth import Effects, check_calls, check_log
from tests.world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PACER = """
    import os

    from brain.effects import Execute, Finish, HarnessType
    from brain.harnesses.tool_loop import tool_loop
    from brain.context.request import next_reply

    def one_by_one(transcript):
        while True:
            if calls := transcript.open_calls():
                yield Execute((calls[0].call_id,))
            elif transcript.wants_model():
                yield next_reply(transcript)
            else:
                yield Finish("end_turn")

    VERSION = os.environ["PACER"]
    HARNESS = HarnessType(VERSION, tool_loop if VERSION == "1" else one_by_one)
"""
EVENTS = {
    "request.started": "span.model_request_start",
    "intent.appended": "agent.tool_use",
    "hand.requested": "hand.provision_requested",
    "hand.provisioned": "hand.provisioned",
    "result.appended": "agent.tool_result",
}
"""The step at which its brain dies → the event that it has just appended."""


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    installed = Installed(tmp_path / "installed")
    installed.install("pacer", PACER, {"pacer": "HARNESS"})
    environ = {**installed.environ, **Points(tmp_path / "faults").environ, "PACER": "1"}
    environ["CARPAL_RECONNECT_MAX"] = "1"  # the daemon is to be there when its only brain is
    async with world(tmp_path / "state", term=2.0 * SCALE, environ=environ) as running:
        yield running


async def test_a_newer_version_of_a_harness_goes_on_at_any_event_and_the_log_says_which_drove(
    it: World, tmp_path: Path
) -> None:
    points = Points(tmp_path / "faults")
    version = 1
    for step, kind in EVENTS.items():
        effects = Effects(tmp_path / step)
        points.arm(f"brain.{step}", "kill")
        task = "\n".join(effects.command(name) for name in ("one", "two"))
        async with session(it, task, agent={"harness": "pacer"}) as made:
            await points.reached(f"brain.{step}", SECONDS)
            await it.running["b1"].kill()
            old, version = version, version + 1
            it.environ["PACER"] = str(version)
            await it.brain("b1")
            await made.until_type("session.status_idle")
            check_log(made.session_id, made.log)
            check_calls(made.log, effects, ["one", "two"], all_ok=True)
        said = [(d["name"], d["version"]) for d in made.data("context.harness")]
        assert said == [("pacer", str(old)), ("pacer", str(version))], made.text()
        second = [e.position for e in made.log if e.type == "context.harness"][1]
        before = [e.type for e in made.log if e.position < second]
        assert kind in before, f"{kind} was not the old version's"
        asked = [d["harness"] for d in made.data("span.model_request_start")]
        assert asked[0] == f"pacer/{old}"
        assert asked[-1] == f"pacer/{version}"
