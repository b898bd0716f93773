"""A link whose other end froze, or whose path swallows all, is over at both ends within the limit.

And only such a link: a host that is busy is not taken for one that is gone. With real brains the
limit is three heartbeats of 5 s; here a heartbeat is shorter, and the rest as it is.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise

import pytest

from brain.daemons.daemon_link import DaemonLink
from carpal.errors import CarpalError
from carpal.status import Reason
from tests.fault_proxy import FaultProxy, Way, fault_proxy
from tests.hands.fake_brain import HEARTBEAT, Asked, FakeBrain, next_reply
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.pace import SCALE

SILENCE = 10 * HEARTBEAT
"""Seconds of silence that end a link here."""
SLACK = 3.0 * SCALE
"""Seconds that a loaded machine may add."""
HELD = "echo up; read x < go; echo ran >> log; cat log"


@pytest.fixture
async def path(one: FakeBrain) -> AsyncIterator[FaultProxy]:
    """The way to that brain."""
    async with fault_proxy(one.address) as proxy:
        one.brains = [proxy.address]
        yield proxy


@pytest.fixture
def machine(machine: Machine, path: FaultProxy) -> Machine:
    """The machine, that way."""
    machine.dials(path.address)
    return machine


async def ended(link: DaemonLink, seconds: float) -> CarpalError | None:
    """Until a link is over at the brain; what it ended with."""
    async with asyncio.timeout(seconds):
        with suppress(CarpalError):
            await asyncio.shield(link._ended)
    error = link._ended.exception()
    return error if isinstance(error, CarpalError) else None


async def held(machine: Machine, asked: Asked) -> None:
    """A hand with a call that waits to be let go."""
    await asked.provision("h")
    machine.fifo()
    await next_reply(asked.execute("h", "c", HELD))


async def goes_on(machine: Machine, asked: Asked) -> None:
    """The call of before runs, has all its output, and ran once."""
    replies = asked.execute("h", "c", HELD)
    assert (await next_reply(replies)).execute.output.data == b"up\n"
    await machine.let_go()
    async with asyncio.timeout(PATIENCE):
        async for reply in replies:
            last = reply
    assert last.execute.result.content == "up\nran\n"


@pytest.mark.parametrize("ways", [(Way.UP, Way.DOWN), (Way.UP,), (Way.DOWN,)], ids=str)
async def test_a_path_that_swallows_all_is_noticed_at_both_ends_and_the_call_goes_on_l01_s07(
    machine: Machine, one: FakeBrain, path: FaultProxy, ways: tuple[Way, ...]
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await held(machine, asked)
        began = time.monotonic()
        path.connections[0].blackhole(*ways)
        await path.connected(2, SILENCE + SLACK)  # the daemon dials anew, unaided
        error = await ended(asked.link, SILENCE + SLACK)
        assert time.monotonic() - began < SILENCE + SLACK
        if Way.UP in ways:
            assert error is not None
            assert error.reason is Reason.LINK_SILENT
        await goes_on(machine, await one.link())


async def test_a_result_that_left_for_a_dead_path_is_in_the_journal_and_comes_again_l36(
    machine: Machine, one: FakeBrain, path: FaultProxy
) -> None:
    """L36: what a stream has pulled from its queue may be lost; the journal is the source."""
    async with machine.daemon():
        asked = await one.link()
        await held(machine, asked)
        path.connections[0].blackhole(Way.UP)
        swallowed = path.connections[0].up.swallowed
        await machine.let_go()
        again = await one.link()
        assert path.connections[0].up.swallowed > swallowed
        async with asyncio.timeout(PATIENCE):
            async for reply in again.execute("h", "c", HELD):
                last = reply
        assert last.execute.result.content == "up\nran\n"


@pytest.mark.slow
async def test_a_frozen_daemon_is_noticed_and_comes_back_with_its_call_when_it_thaws_l01(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.process() as daemon:
        asked = await one.link()
        await held(machine, asked)
        os.kill(daemon.pid, signal.SIGSTOP)
        error = await ended(asked.link, SILENCE + SLACK)
        assert error is not None
        assert error.reason is Reason.LINK_SILENT
        os.kill(daemon.pid, signal.SIGCONT)
        await goes_on(machine, await one.link())


@pytest.mark.slow
async def test_an_end_that_stood_still_for_less_than_the_limit_keeps_its_link(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.process() as daemon:
        asked = await one.link()
        os.kill(daemon.pid, signal.SIGSTOP)
        await asyncio.sleep(0.7 * SILENCE)  # the pause itself
        os.kill(daemon.pid, signal.SIGCONT)
        came = len(one.beats)
        async with asyncio.timeout(PATIENCE):
            while len(one.beats) < came + 5:  # noqa: ASYNC110 - it is a pace
                await asyncio.sleep(HEARTBEAT)
        assert asked.link.open
        assert one.links.empty()


@pytest.mark.slow
async def test_heartbeats_go_in_time_while_hands_flood_output_and_the_host_is_busy(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.process():
        asked = await one.link()
        for number in range(4):
            await asked.provision(f"h{number}")
        began = time.monotonic()
        flood = "for i in 1 2 3; do (while :; do :; done) & done; timeout {} yes; kill %1 %2 %3"
        floods = [
            asyncio.create_task(_read_all(asked, f"h{number}", flood.format(5.0 * SCALE)))
            for number in range(4)
        ]
        async with asyncio.timeout(PATIENCE):
            written = sum(await asyncio.gather(*floods))
        beats = [began, *(beat for beat in one.beats if beat > began), time.monotonic()]
    assert written > 8 << 20, "no flood"
    gaps = [later - earlier for earlier, later in pairwise(beats)]
    assert one.links.empty(), "the link was lost"
    assert max(gaps) < HEARTBEAT + 1.0 * SCALE


async def _read_all(asked: Asked, hand_id: str, command: str) -> int:
    """A call to its end; the bytes that it wrote."""
    async for reply in asked.execute(hand_id, f"flood-{hand_id}", command):
        last = reply
    return last.execute.result.output_bytes
