"""Kill the brain at any moment: another drives, each side effect happened once, the log is true."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import session_pb2, types_pb2
from tests.interaction.play import (
    HELD,
    SECONDS,
    Session,
    let_go,
    one_effect,
    pipes,
    session,
    started,
)
from tests.pace import SCALE
from tests.world import World, world

TERM = 2.0 * SCALE
"""Seconds of a lease here; the true length is the demo's."""
TAKEOVER = TERM + 2.0 * SCALE
"""Seconds from a brain's death until another must hold the lease."""
DRIVE = 0.5
"""Seconds that a drive takes up to its call, and a little of the call."""


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "state", brains=("b1", "b2"), term=TERM) as running:
        yield running


async def test_a_brain_killed_in_the_middle_of_a_call_is_replaced_and_the_call_runs_once(
    it: World, tmp_path: Path
) -> None:
    work = pipes(tmp_path / "work")
    async with session(it, HELD, work) as made:
        await started(work)
        driver = await kill_the_driver(it, made)
        await taken_over(made, driver.epoch)
        await let_go(work)
        await ends_well(made, work)
    drivers = {e.source for e in made.log if e.type.startswith(("agent.", "span."))}
    assert len(drivers) == 2, "two brains are in the log"


@pytest.mark.timeout(400)
@pytest.mark.slow
async def test_twenty_kills_in_the_middle_of_a_call_leave_one_side_effect_each_and_its_true_output(
    it: World, tmp_path: Path
) -> None:
    for number in range(20):
        work = pipes(tmp_path / f"work-{number}")
        async with session(it, HELD, work) as made:
            await started(work)
            driver = await kill_the_driver(it, made)
            if number % 2:
                await let_go(work)  # the call ends while nobody drives
            await taken_over(made, driver.epoch)
            if not number % 2:
                await let_go(work)
            await ends_well(made, work)
        await it.brain(name(driver))


@pytest.mark.timeout(400)
@pytest.mark.slow
async def test_kills_at_random_moments_leave_one_side_effect_each_and_its_true_output(
    it: World, tmp_path: Path
) -> None:
    moments = chance()
    for number in range(10):
        work = pipes(tmp_path / f"work-{number}")
        (work / "started").unlink()  # a file, which nobody has to read
        async with session(it, HELD, work) as made:
            # From before the first model request into the call, which outlasts the moment.
            await lease_above(made, 0)
            await asyncio.sleep(moments.uniform(0.0, DRIVE))  # the moment itself
            driver = await kill_the_driver(it, made)
            await taken_over(made, driver.epoch)
            await let_go(work)
            await ends_well(made, work)
        await it.brain(name(driver))


@pytest.mark.timeout(400)
@pytest.mark.slow
async def test_kills_around_the_end_of_a_turn_leave_one_side_effect_each_and_its_true_output(
    it: World, tmp_path: Path
) -> None:
    moments = chance()
    for number in range(6):
        work = pipes(tmp_path / f"work-{number}")
        async with session(it, HELD, work) as made:
            await started(work)
            lease = await made.lease()
            await let_go(work)
            # From before the call's result to after the turn's end.
            await asyncio.sleep(moments.uniform(0.0, DRIVE))  # the moment itself
            await it.running[name(lease)].kill()
            await ends_well(made, work)
        await it.brain(name(lease))


def chance() -> random.Random:
    """Random moments, whose seed a failure shows."""
    seed = random.randrange(1 << 32)
    logging.getLogger(__name__).warning("seed %d", seed)
    return random.Random(seed)


async def kill_the_driver(it: World, made: Session) -> types_pb2.LeaseInfo:
    """SIGKILL the brain that drives, which there must be; the lease it had."""
    lease = await made.lease()
    assert lease.expires_in.ToNanoseconds() > 0, "nobody drives; the log:\n" + made.text()
    await it.running[name(lease)].kill()
    return lease


async def taken_over(made: Session, epoch: int) -> None:
    """Until another holds the lease, which must be soon enough after this call."""
    killed = time.monotonic()
    await lease_above(made, epoch)
    waited = time.monotonic() - killed
    assert waited <= TAKEOVER, f"it took {waited:.1f} s to be driven again"


async def lease_above(made: Session, epoch: int) -> None:
    """Until a lease of a higher epoch was given."""
    request = session_pb2.WatchLeasesRequest(prefix=f"session/{made.session_id}")
    stream = made.stub.WatchLeases(request, timeout=SECONDS)
    try:
        async for answer in stream:
            if any(lease.epoch > epoch for lease in answer.leases):
                return
    finally:
        stream.cancel()
    raise AssertionError("sessiond ended the watch")


async def ends_well(made: Session, work: Path) -> None:
    """To the end of the turn: one side effect, and its output is the call's one result."""
    await made.until_type("session.status_idle")
    one_effect(work, made)
    assert made.data("agent.tool_result")[0]["outcome"] == "ok", made.text()


def name(lease: types_pb2.LeaseInfo) -> str:
    """Of the brain that holds it."""
    return lease.holder.rpartition("/")[2]
