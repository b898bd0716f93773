"""Cases of the link where they bite a brain: over real gRPC, with daemons that do the worst."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from carpal.client import rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.link_sizes import MESSAGE_MAX
from carpal.status import Code, Reason
from carpal.v1 import hand_pb2, orchestrator_pb2_grpc
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import Brain, Daemon, brain, linked
from tests.brain.stage import Stage
from tests.fault_proxy import Way, fault_proxy
from tests.pace import AT_ONCE
from tests.sessiond.serving import Serving


@pytest.fixture
async def one(sessions: Serving) -> AsyncIterator[Brain]:
    """A brain that serves."""
    async with brain(sessions) as serving:
        yield serving


async def describes(to: Brain, daemon: Daemon) -> None:
    """What is asked of `d1` is asked of this end, and its answer comes."""
    asking = (await to.fleet.connection("d1", "default")).call(
        "describe", hand_pb2.DescribeRequest()
    )
    answer = asyncio.ensure_future(anext(asking))
    await daemon.reply(await daemon.next(), describe=hand_pb2.DescribeResponse(version="1"))
    assert (await answer).version == "1"
    await asking.aclose()


async def test_l05_a_brain_refuses_at_once_what_a_daemon_it_does_not_know_goes_on_with(
    one: Brain,
) -> None:
    """L05: nobody beats into the void; the daemon is told to say hello."""
    going_on: list[pb.DaemonMessage] = [
        pb.DaemonMessage(heartbeat=pb.Heartbeat(sequence=70)),
        pb.DaemonMessage(reply=pb.Reply(request_id=3, last=True)),
        pb.DaemonMessage(capacity=pb.Capacity(hands=1)),
    ]
    for message in going_on:
        async with one.asked_by(Role.DAEMON, "d1", "default") as channel:
            stream = orchestrator_pb2_grpc.OrchestratorStub(channel).Connect()
            await stream.write(pb.ConnectRequest(messages=[message]))
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                async with asyncio.timeout(AT_ONCE):
                    await stream.read()
        assert caught.value.reason is Reason.LINK_VIOLATION
        assert "while greeting" in caught.value.message
    async with linked(one) as daemon:
        await describes(one, daemon)


async def test_l06_a_daemon_that_dropped_half_open_and_redials_supersedes_its_ghost_at_once(
    one: Brain,
) -> None:
    """L06: what was asked of the ghost fails at once, and the new link serves."""
    direct = one.address
    async with fault_proxy(direct) as proxy:
        one.address = proxy.address
        async with linked(one) as ghost:
            one.address = direct
            asking = (await one.fleet.connection("d1", "default")).call(
                "execute", hand_pb2.ExecuteRequest(call_id="c")
            )
            lost = asyncio.ensure_future(anext(asking))
            await ghost.next()
            proxy.blackhole(Way.UP, Way.DOWN)
            async with linked(one) as daemon:
                with pytest.raises(CarpalError) as caught:
                    async with asyncio.timeout(AT_ONCE):
                        await lost
                assert caught.value.reason is Reason.DAEMON_NOT_LINKED
                await describes(one, daemon)
                assert ghost.goodbye == "", "it could not be told"
                assert daemon.welcome.epoch == ghost.welcome.epoch + 1


async def test_l06_of_two_links_that_come_at_once_the_one_with_the_higher_epoch_stays(
    one: Brain,
) -> None:
    """L06: whichever of them the brain hears of first."""
    acquire = one.keeper.acquire
    first, second = asyncio.Event(), asyncio.Event()

    async def late(*args: str, **more: object) -> object:
        lease = await acquire(*args, **more)  # type: ignore[arg-type]
        if lease[0].epoch == 1:
            first.set()
            await second.wait()
        return lease

    one.keeper.acquire = late  # type: ignore[method-assign, assignment]
    older = asyncio.create_task(refusal(one))
    await first.wait()
    async with linked(one) as newer:
        second.set()
        assert (await older).reason is Reason.LINK_SUPERSEDED
        await describes(one, newer)
        assert newer.goodbye == ""


async def refusal(to: Brain) -> CarpalError:
    """What a daemon that links is refused with."""
    with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
        async with linked(to):
            pass
    return caught.value


async def test_l31_a_daemon_that_says_anothers_name_is_refused_and_the_other_not_disturbed(
    one: Brain,
) -> None:
    """L31: the name is the certificate's; a claim takes neither the lease nor the link."""
    async with linked(one, "d1") as daemon:
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            async with linked(one, "d2", says="d1"):
                pass
        assert caught.value.reason is Reason.NAME_MISMATCH
        assert caught.value.code == Code.PERMISSION_DENIED
        await describes(one, daemon)
        assert daemon.goodbye == ""
    async with linked(one, "d1") as again:
        assert again.welcome.epoch == daemon.welcome.epoch + 1, "nobody took its lease between"


async def test_l21_a_request_that_no_link_can_carry_is_refused_and_its_link_goes_on(
    one: Brain,
) -> None:
    """L21: it is not sent, here or by one hop, so it ends no link."""
    huge = hand_pb2.ExecuteRequest(call_id="c", input=b" " * MESSAGE_MAX)
    async with brain(one.sessions, "brain-2") as two, linked(one) as daemon:
        await two.sees(lambda fleet: "d1" in fleet.directory.daemons)
        for asker in (one, two):
            connection = await asker.fleet.connection("d1", "default")
            with pytest.raises(CarpalError) as caught:
                await anext(connection.call("execute", huge))
            assert caught.value.reason is Reason.MESSAGE_TOO_LARGE
        await describes(one, daemon)
        assert daemon.asked.empty()


async def test_l21_a_call_that_no_link_can_carry_is_settled_once_with_the_reason(
    driven: Stage,
) -> None:
    """L21: its outcome is in the log, and no driver asks for it again."""
    await driven.hand()
    call_id = await driven.call()
    driven.hands.script["execute"] = [refuse(Reason.MESSAGE_TOO_LARGE, "the request has 3 MB")]
    (data,) = await driven.settle(call_id)
    assert data["outcome"] == "error"
    assert "not run: the request has 3 MB" in data["content"][0]["text"]
    assert driven.hands.arms().count("execute") == 1
    assert driven.driver.transcript.calls[call_id].result is not None, "to a driver it is over"
