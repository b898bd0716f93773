"""Every cut that is planned is announced: daemons are asked to leave before it, spread out."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from brain.daemons import drains
from brain.daemons.drains import LEAD, Plan
from brain.daemons.planned import PlannedEnds
from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Identity
from carpal.link import Link, Side, State
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import Daemon, brain, linked
from tests.brain.stage import WAIT
from tests.pace import SCALE
from tests.sessiond.desk import BRAIN
from tests.sessiond.serving import Serving

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def ending(end: datetime, life: timedelta = DAY) -> Identity:
    return replace(BRAIN, not_before=end - life, not_after=end)


def plan(theirs: timedelta = DAY, ours: timedelta = DAY, age: float = 0, chance: float = 0) -> Plan:
    ends = {"theirs": ending(NOW + theirs), "ours": ending(NOW + ours)}
    return drains.plan(NOW, **ends, age=age, chance=chance)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_a_link_is_drained_before_the_certificate_of_either_end_runs_out(chance: float) -> None:
    hour = timedelta(hours=1)
    for planned in (plan(theirs=hour, chance=chance), plan(ours=hour, chance=chance)):
        assert planned.drain is not None
        assert 3600 - 2 * LEAD < planned.drain <= 3600 - LEAD
    assert plan(ours=hour).end == 3600


def test_a_daemon_that_comes_back_with_a_certificate_about_to_expire_is_not_sent_round() -> None:
    assert plan(theirs=timedelta(seconds=2 * LEAD)) == plan(), "for ours alone"
    past = plan(theirs=timedelta(seconds=60), ours=timedelta(seconds=-1))
    assert past == Plan(None, 0.0)


def test_a_certificate_that_lives_for_minutes_has_its_links_drained_too() -> None:
    minute = timedelta(minutes=1)
    short = ending(NOW + 9 * minute, life=10 * minute)
    planned = drains.plan(NOW, theirs=short, ours=ending(NOW + DAY), age=0, chance=0)
    assert planned.drain == 8 * 60


def test_links_that_began_together_do_not_end_together() -> None:
    ends = {plan(age=1000, chance=random.random()).drain for _ in range(50)}
    assert len(ends) > 40
    assert all(end is not None and 900 < end <= 1000 for end in ends)
    assert plan(theirs=timedelta(hours=1), age=10_000).drain == 3600 - LEAD, "the earlier counts"


def test_more_daemons_leave_over_a_longer_time_but_within_bounds() -> None:
    assert [drains.spread(n) for n in (0, 1, 100, 1_000, 50_000)] == [0, 0.005, 0.5, 5.0, 5.0]


def test_a_drain_of_twenty_minutes_keeps_its_heartbeats_at_both_ends_l14() -> None:
    brain_end, daemon_end = Link(Side.BRAIN, 0.0), Link(Side.DAEMON, 0.0, _hello())

    def exchange(now: float) -> None:
        for source, target in ((daemon_end, brain_end), (brain_end, daemon_end)):
            target.receive([message for message, _ in source.outgoing()], now)

    exchange(0.0)
    welcome = pb.Welcome(protocol=1, epoch=1)
    welcome.heartbeat_interval.FromSeconds(5)
    welcome.silence_limit.FromSeconds(15)
    brain_end.welcome(welcome, 0.0)
    exchange(0.0)
    daemon_end.drain(pb.Drain(reason="maintenance"))
    for now in range(20 * 60):
        exchange(float(now))
        brain_end.tick(float(now), lease_left=8.0)
        daemon_end.tick(float(now))
    assert (brain_end.state, daemon_end.state) == (State.DRAINING, State.DRAINING)


def _hello() -> pb.Hello:
    return pb.Hello(daemon_id="d", protocol_min=1, protocol_max=1)


async def _drained(daemon: Daemon) -> pb.Drain:
    async with asyncio.timeout(WAIT):
        return await daemon.drains.get()


async def test_daemons_of_a_brain_that_stops_are_asked_before_its_port_closes_l37(
    sessions: Serving,
) -> None:
    async with brain(sessions) as one, AsyncExitStack() as stack:
        daemons = [await stack.enter_async_context(linked(one, f"d{n}")) for n in range(3)]
        leaving = asyncio.create_task(one.fleet.links.leave("deploy"))
        for daemon in daemons:
            drain = await _drained(daemon)
            assert drain.reason == "deploy"
            assert drain.reconnect_after.ToTimedelta().total_seconds() <= drains.spread(3)
        assert not leaving.done(), "it waits for them"
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            async with linked(one, "d9"):
                pass
        assert caught.value.reason is Reason.UNAVAILABLE
        for daemon in daemons:
            await daemon.say(goodbye=pb.Goodbye(reason="the brain drains"))
        async with asyncio.timeout(WAIT):
            await leaving


async def test_a_server_that_stops_drains_its_links_whatever_ended_it_l37(
    sessions: Serving,
) -> None:
    async with AsyncExitStack() as stack:
        with suppress(RuntimeError):
            async with brain(sessions) as one:
                daemon = await stack.enter_async_context(linked(one))
                raise RuntimeError("a part of the brain failed")
        assert (await _drained(daemon)).reason == "it stops"
        assert daemon.goodbye, "one that stays is told goodbye before the port closes"


async def test_a_link_that_gets_old_is_drained_and_goes_on_meanwhile_l07(
    sessions: Serving,
) -> None:
    planned = PlannedEnds(lambda: BRAIN, age=0.3 * SCALE)
    async with brain(sessions, planned=planned) as one, linked(one) as daemon:
        assert (await _drained(daemon)).reason == "the link gets old"
        (told,) = one.fleet.daemons("default")
        assert told.state == "connected"
        assert one.fleet.has("d1")


async def test_a_link_ends_with_the_brains_own_certificate(sessions: Serving) -> None:
    soon = ending(datetime.now(UTC) + timedelta(seconds=0.5 * SCALE))
    async with brain(sessions, planned=PlannedEnds(lambda: soon)) as one, linked(one) as daemon:
        await _expires(daemon)


async def test_a_machine_that_slept_past_a_planned_end_sees_it_when_it_wakes(
    sessions: Serving,
) -> None:
    """Its timers stood still meanwhile; the clock on the wall did not."""
    slept = timedelta()
    shown = ending(datetime.now(UTC) + DAY)
    planned = PlannedEnds(lambda: shown, now=lambda: datetime.now(UTC) + slept, look=0.05)
    async with brain(sessions, planned=planned) as one, linked(one) as daemon:
        slept = DAY - timedelta(minutes=5)
        assert (await _drained(daemon)).reason == "the link gets old"
        assert daemon.drains.empty()
        slept = DAY
        await _expires(daemon)


async def _expires(daemon: Daemon) -> None:
    with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
        await daemon.ended()
    assert caught.value.reason is Reason.CERTIFICATE_EXPIRED
