"""Kill the brain at any moment: another drives, each side effect happened once, the log is true."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.interaction.play import EFFECT, Session, one_effect, session
from tests.world import World, world

TERM = 2.0
"""Seconds of a lease here; the true length is the demo's."""
ROUNDS = 20
CALL_SECONDS = 0.6


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "state", brains=("b1", "b2"), term=TERM) as running:
        yield running


@pytest.mark.timeout(400)
@pytest.mark.slow
async def test_twenty_kills_at_random_moments_leave_one_side_effect_each_and_its_true_output(
    it: World, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    for number in range(ROUNDS):
        work = tmp_path / f"work-{number}"
        work.mkdir()
        # From before the first model request to after the result is in the log.
        moment = moments.uniform(0.0, CALL_SECONDS + 0.4)
        context = f"seed {seed}, round {number}, killed after {moment:.3f} s"
        async with session(it, EFFECT.format(seconds=CALL_SECONDS), work) as made:
            await asyncio.sleep(moment)  # the random moment itself, not a wait for something
            await _kill_the_driver_and_finish(it, made, work, context)


async def test_a_brain_killed_in_the_middle_of_a_call_is_replaced_and_the_call_runs_once(
    it: World, tmp_path: Path
) -> None:
    async with session(it, EFFECT.format(seconds=1), tmp_path) as made:
        await made.until_type("hand.provisioned")
        await _kill_the_driver_and_finish(it, made, tmp_path, "mid-call")
    drivers = {e.source for e in made.log if e.type.startswith(("agent.", "span."))}
    assert len(drivers) == 2, "two brains are in the log"


async def _kill_the_driver_and_finish(it: World, made: Session, work: Path, context: str) -> None:
    lease = await made.lease()
    driver = lease.holder.rpartition("/")[2]
    live = lease.expires_in.ToNanoseconds() > 0
    if live:
        await it.running[driver].kill()
    killed = time.monotonic()
    idle = await made.until_type("session.status_idle")
    if live and idle.source.rpartition("/")[2] != driver:
        waited = time.monotonic() - killed
        assert waited < TERM + 2 + CALL_SECONDS + 1, f"{context}: it took {waited:.1f} s"
    one_effect(work, made)
    assert made.data("agent.tool_result")[0]["outcome"] == "ok", context
    if live:
        await it.brain(driver)
