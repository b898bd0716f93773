"""From hello to welcome: a brain to which thousands come at once takes them in turns."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from brain.daemons.admission import AT_ONCE, Admission
from brain.daemons.daemon_link import DaemonLink
from brain.daemons.introduction import Introduction
from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.revocations import Revocations
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import Brain, brain, linked
from tests.brain.stage import WAIT
from tests.sessiond.serving import Serving


class Held:
    """A stub that answers for no daemon before it may, and counts what is asked."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self.may = asyncio.Event()
        self.asking = self.most = 0
        self.full = asyncio.Event()
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._stub, name)

    async def GetDocument(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as the stub
        """See the session service."""
        self.asked.append("GetDocument")
        self.asking += 1
        self.most = max(self.most, self.asking)
        if self.asking == AT_ONCE:
            self.full.set()
        try:
            await self.may.wait()
            return await self._stub.GetDocument(request, timeout=timeout)
        finally:
            self.asking -= 1


class Door:
    """A brain's admission, with `Held` before its sessiond."""

    def __init__(self, sessions: Serving, to: Brain) -> None:
        self.held = cast("Any", Held(to.fleet.directory.sessions))
        me = sessions.pki.issue(Role.BRAIN, to.name)
        self.admission = Admission(to.fleet, me.identity(), Introduction(me, Revocations()))
        self.links = to.fleet.links
        self.admission.gate._sessions = self.held
        self.links._keeper._stub = self.held
        self._identity = sessions.pki.issue(Role.DAEMON, "d").identity()

    def link(self, name: str) -> DaemonLink:
        """A daemon's link that said nothing yet."""
        return DaemonLink(dataclasses.replace(self._identity, name=name), lambda: 10.0)

    async def come(self, name: str, instance: str = "") -> int:
        """The epoch of a daemon that says hello."""
        hello = pb.Hello(daemon_id=name, instance_id=instance, last_epoch=1)
        link = self.link(name)
        link.hello = hello
        return (await self.admission.admit(link, hello, 1)).epoch


@pytest.fixture
async def door(sessions: Serving) -> AsyncIterator[Door]:
    async with brain(sessions) as one, asyncio.timeout(WAIT):
        yield Door(sessions, one)


async def test_daemons_that_come_at_once_are_admitted_in_turns_and_all_get_in(door: Door) -> None:
    async with asyncio.TaskGroup() as group:
        coming = [group.create_task(door.come(f"d{n}")) for n in range(3 * AT_ONCE)]
        await door.held.full.wait()
        door.held.may.set()
        assert [await one for one in coming] == [1] * len(coming)
    assert door.held.most == AT_ONCE


async def test_a_hello_costs_sessiond_one_read_and_one_lease(door: Door) -> None:
    door.held.may.set()
    assert await door.come("d") == 1
    assert door.held.asked == ["GetDocument", "AcquireLease"]


async def test_a_brain_that_leaves_takes_none_of_those_that_wait_for_their_turn(door: Door) -> None:
    """They are sent on at once, not welcomed and then cut without a word."""
    coming = [asyncio.create_task(door.come(f"d{n}")) for n in range(3 * AT_ONCE)]
    await door.held.full.wait()
    await door.links.leave("it stops")
    door.held.may.set()
    for one in coming:
        with pytest.raises(CarpalError) as caught:
            await one
        assert caught.value.reason is Reason.UNAVAILABLE
    assert door.held.asked == ["GetDocument"] * AT_ONCE


async def test_a_lease_that_comes_when_the_brain_leaves_is_given_up(door: Door) -> None:
    taking = asyncio.create_task(door.links.take(door.link("d")))
    await asyncio.sleep(0)
    await door.links.leave("it stops")
    with pytest.raises(CarpalError) as caught:
        await taking
    assert caught.value.reason is Reason.UNAVAILABLE
    assert door.held.asked == ["AcquireLease", "ReleaseLease"]
    assert not list(door.links)


async def test_a_daemon_that_does_not_answer_holds_no_turn_however_often_it_comes(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.held.may.set()
    assert await door.come("silent", "inst_0") == 1
    asked = asyncio.Semaphore(0)

    async def never(name: str, workspace: str) -> None:
        asked.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(door.admission, "_answer", never)
    silent = [asyncio.create_task(door.come("silent", f"inst_{n + 1}")) for n in range(AT_ONCE)]
    for _ in silent:
        await asked.acquire()
    assert await door.come("other") == 1
    assert not any(one.done() for one in silent)
    for one in silent:
        one.cancel()
    await asyncio.gather(*silent, return_exceptions=True)


async def test_of_two_hellos_of_one_daemon_the_newer_wins(sessions: Serving) -> None:
    async with brain(sessions) as to, linked(to) as silent:
        first = asyncio.create_task(welcomed(to, instance_id="inst_2"))
        assert (await silent.next()).HasField("describe")
        second = asyncio.create_task(welcomed(to, instance_id="inst_3"))
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await first
        assert caught.value.reason is Reason.LINK_SUPERSEDED
        assert await second == silent.welcome.epoch + 1


async def welcomed(to: Brain, **hello: Any) -> int:
    """The epoch of a link, which then ends."""
    async with linked(to, **hello) as daemon:
        return daemon.welcome.epoch
