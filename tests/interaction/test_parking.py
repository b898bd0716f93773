"""A harness that is at fault parks its session, with the reason; no other session notices."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.command import Command
from tests.interaction.harnesses import Installed
from tests.interaction.play import Session, session
from tests.pace import SCALE
from tests.world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SECONDS = 120.0 * SCALE
"""Until four drives failed, each a while after the one before."""
FAULTY = """
    import asyncio
    import os
    from pathlib import Path

    from brain.effects import HarnessType
    from brain.harnesses.tool_loop import tool_loop

    MENDED = Path(os.environ["MENDED"])

    def raises(transcript):
        raise ValueError("it fell over")
        yield

    def nonsense(transcript):
        yield "run everything"

    def busy(transcript):
        while True:
            pass
        yield

    async def hangs(transcript):
        await asyncio.Event().wait()
        yield

    def until_mended(broken):
        def start(transcript):
            return tool_loop(transcript) if MENDED.exists() else broken(transcript)
        return HarnessType("1", start, wait_limit=0.5)

    RAISES, NONSENSE, BUSY, HANGS = map(until_mended, (raises, nonsense, busy, hangs))
"""
WORKING = """
    from brain.effects import HarnessType
    from brain.harnesses.tool_loop import tool_loop

    HARNESS = HarnessType("1", tool_loop)
"""
FAULTS = {
    "raises": "it raised ValueError: it fell over",
    "nonsense": "it yielded no effect but a str",
    "busy": "it did not come back within 2 s",
    "hangs": "it asked for nothing for 0.5 s",
    "absent": "which is not installed here",
}
"""Harness → why its session is parked."""


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Every harness but `absent`."""
    found = Installed(tmp_path / "installed")
    found.install("faulty", FAULTY, {name: name.upper() for name in FAULTS if name != "absent"})
    return found


@pytest.fixture
async def it(tmp_path: Path, installed: Installed) -> AsyncIterator[World]:
    """One brain, which has to do it all."""
    environ = {**installed.environ, "MENDED": str(tmp_path / "mended")}
    async with world(tmp_path / "state", term=10.0 * SCALE, environ=environ) as running:
        yield running


async def test_a_faulty_harness_parks_its_session_with_the_reason_and_no_other_session_notices(
    it: World, installed: Installed, tmp_path: Path
) -> None:
    carpal = Command(
        tmp_path,
        {"CARPAL_STATE": str(it.state), "CARPAL_SESSIOND": it.running["sessiond"].facts["address"]},
    )
    async with AsyncExitStack() as stack:
        faulty = {
            name: await stack.enter_async_context(
                session(it, "$ echo well again", agent={"harness": name})
            )
            for name in FAULTS
        }
        beside = [
            await stack.enter_async_context(session(it, "$ sleep 0.5\n" * 8)) for _ in range(3)
        ]
        for each in beside:
            await each.until_type("session.status_idle", seconds=SECONDS)
            assert each.data("session.status_idle")[0]["stop_reason"]["type"] == "end_turn"
            assert not each.data("session.error"), each.text()
            assert [r["outcome"] for r in each.data("agent.tool_result")] == ["ok"] * 8
        await asyncio.gather(*(parked(carpal, made, FAULTS[n]) for n, made in faulty.items()))
        # The cause is gone, while the brain runs on; a message wakes each.
        (tmp_path / "mended").touch()
        installed.install("late", WORKING, {"absent": "HARNESS"})
        for made in faulty.values():
            asked = await made.say("$ echo well again")
            await made.until_type("session.status_idle", after=asked.position, seconds=SECONDS)
            assert made.results()[-1].startswith("well again"), made.text()
            assert made.data("session.status_idle")[-1]["stop_reason"]["type"] == "end_turn"
            assert (await shown(carpal, made))["parked_reason"] is None
    assert it.running["b1"].child.is_alive(), "one brain did it all"


async def parked(carpal: Command, made: Session, why: str) -> None:
    """Until it is parked, for this reason, as its log says and `carpal session show` does."""
    idle = await made.until_type("session.status_idle", seconds=SECONDS)
    assert json.loads(idle.data)["stop_reason"]["type"] == "retries_exhausted"
    (error,) = made.data("session.error")
    assert "3 tries without progress" in error["error"]["message"], made.text()
    assert why in error["error"]["message"], made.text()
    said = await shown(carpal, made)
    assert said["status"] == "parked"
    assert why in str(said["parked_reason"])


async def shown(carpal: Command, made: Session) -> dict[str, object]:
    """What `carpal session show` says of it."""
    ended = await carpal("session", "show", made.session_id, "--json")
    assert ended.code == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found
