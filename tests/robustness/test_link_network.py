"""Every fault of the network at every kind of frame: the call goes on, and happens at most once.

The process that is about to send a frame, or has just sent it, stands still while the
fault is put in its way. All pairs are a soak, in parts that may run side by side; a run
of the tests takes some, by chance.
"""

import asyncio
import itertools
import logging
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.faults import FaultProxy, Way, stopped
from tests.interaction.play import session
from tests.pace import times
from tests.robustness.link_world import (
    ATTACH,
    HEARTBEAT,
    MANY,
    MOMENTS,
    SECONDS,
    LinkWorld,
    link_world,
    send,
)
from tests.robustness.truth import Effects, check_calls, check_log

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "cut": lambda front: front.cut(),
    "refuse": lambda front: front.refuse(),
    "blackhole": lambda front: front.blackhole(),
    "blackhole of what the daemon sends": lambda front: front.blackhole(Way.UP),
    "blackhole of what the brain sends": lambda front: front.blackhole(Way.DOWN),
    "stall": lambda front: front.stall(),
    "delay": lambda front: front.delay(0.3),
    "half-open, the brain told": lambda front: front.half_open(Way.DOWN),
    "half-open, the daemon told": lambda front: front.half_open(Way.UP),
    "reset in the middle of what the daemon sends": lambda front: front.reset_after(7, Way.UP),
    "reset in the middle of what the brain sends": lambda front: front.reset_after(7, Way.DOWN),
}
FRAMES = (
    *("daemon.hello", "brain.welcome"),
    *("brain.request_provision", "daemon.reply_provision"),
    *("brain.request_claim", "daemon.reply_claim"),
    *("brain.request_execute", "daemon.reply_execute"),
    *("brain.request_acknowledge", "daemon.reply_acknowledge"),
    *("brain.heartbeat", "daemon.heartbeat", "daemon.capacity"),
    *ATTACH,
)
PARTS = times(1, 11)
LASTS = 0.7
"""Seconds that a fault lasts; some calls end meanwhile."""


@pytest.fixture(scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LinkWorld]:
    async with link_world(tmp_path_factory.mktemp("network") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """As everywhere, for as long as a world lasts."""
    return "asyncio", {"use_uvloop": False}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
async def test_whatever_the_network_does_to_a_frame_each_call_happens_once_and_ends_well(
    it: LinkWorld, tmp_path: Path, chance: random.Random, part: int
) -> None:
    """L09 L22 L36: cut after it was accepted, before the answer, in the middle of output."""
    pairs = list(itertools.product(FAULTS, FRAMES, MOMENTS))[part::PARTS]
    chance.shuffle(pairs)
    wrong: list[Exception] = []
    for number, (fault, frame, moment) in enumerate(pairs[: times(6, len(pairs))]):
        try:
            await case(it, Effects(tmp_path / str(number)), fault, f"{frame}.{moment}")
        except Exception as error:
            error.add_note(f"{fault} at {frame}.{moment}")
            log.warning("it failed", exc_info=error)
            wrong.append(error)
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(pairs)} pairs", wrong)


async def case(it: LinkWorld, effects: Effects, fault: str, point: str) -> None:
    """A session of three calls through one fault."""
    names = ["one", "two", "three"]
    it.points.arm(point, "stop")
    if "hello" in point or "welcome" in point:
        for front in it.fronts:
            front.cut()
    # The second lasts for long enough that there are heartbeats, when one is waited for.
    seconds = 1.5 * HEARTBEAT if "heartbeat" in point else 0.1
    lines = MANY if "attach" in point else 0
    commands = [
        effects.command("one"),
        effects.command("two", seconds, lines),
        effects.command("three"),
    ]
    async with session(it.it, "\n".join(commands)) as made:
        pid = await it.points.reached(point, SECONDS)
        await stopped(pid, SECONDS)
        for front in it.fronts:
            FAULTS[fault](front)
        send(pid, signal.SIGCONT)
        await asyncio.sleep(LASTS)  # how long it lasts is the fault
        await it.mend()
        await made.until_type("session.status_idle", seconds=SECONDS)
        check_log(made.session_id, made.log)
        check_calls(made.log, effects, names, all_ok=True)
        await it.nothing_is_left()
