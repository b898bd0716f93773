"""A daemon's link at a brain: admitted once, superseded by a newer one, and honest when it ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import hand_pb2, hand_pb2_grpc
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import Brain, brain, linked
from tests.brain.stage import WAIT
from tests.sessiond.serving import Serving


@pytest.fixture
async def one(sessions: Serving) -> AsyncIterator[Brain]:
    """A brain that serves."""
    async with brain(sessions) as serving:
        yield serving


async def test_a_welcome_has_the_lease_epoch_and_each_link_a_higher_one(one: Brain) -> None:
    async with linked(one) as first:
        assert (first.welcome.epoch, first.welcome.brain) == (1, "brain-1")
        async with linked(one) as second:
            assert second.welcome.epoch == 2
            await one.sees(lambda fleet: first.goodbye != "")
            assert "newer link" in first.goodbye
            assert one.fleet.has("d1"), "the older link's end is not the newer one's"


async def test_a_daemon_that_says_another_name_is_refused(one: Brain) -> None:
    with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
        async with linked(one, says="d2"):
            pass
    assert caught.value.reason is Reason.NAME_MISMATCH
    assert not one.fleet.has("d1")
    assert not one.fleet.has("d2")


async def test_a_link_that_ends_fails_what_is_open_and_gives_its_lease_up(one: Brain) -> None:
    async with linked(one) as daemon:
        answers = (await one.fleet.connection("d1", "default")).call(
            "list_hands", hand_pb2.ListHandsRequest()
        )
        asking = asyncio.ensure_future(anext(answers))
        await daemon.next()
        daemon.cut()
        with pytest.raises(CarpalError) as caught:
            await asking
    assert caught.value.reason is Reason.DAEMON_NOT_LINKED
    await one.sees(lambda fleet: not fleet.has("d1"))
    await one.sees(lambda fleet: not fleet.directory.daemons["d1"].live)
    with pytest.raises(CarpalError) as caught:
        await one.fleet.connection("d1", "default")
    assert caught.value.reason is Reason.DAEMON_NOT_LINKED


async def test_a_lease_is_given_up_also_when_the_rpc_is_cancelled_meanwhile(one: Brain) -> None:
    async with linked(one):
        link = one.fleet.links.get("d1")
        assert link is not None
        leaving = asyncio.create_task(one.fleet.links.left(link))
        await asyncio.sleep(0)
        leaving.cancel()
        await one.sees(lambda fleet: not fleet.directory.daemons["d1"].live)


async def test_another_workspace_has_no_way_to_a_daemon(one: Brain) -> None:
    async with linked(one):
        with pytest.raises(CarpalError) as caught:
            await one.fleet.connection("d1", "elsewhere")
        assert caught.value.reason is Reason.DAEMON_NOT_LINKED


async def test_who_leaves_an_answer_abandons_it_and_the_link_goes_on(one: Brain) -> None:
    async with linked(one) as daemon:
        connection = await one.fleet.connection("d1", "default")
        answers = connection.call("execute", hand_pb2.ExecuteRequest(call_id="c"))
        asking = asyncio.ensure_future(anext(answers))
        request = await daemon.next()
        assert request.principal == "spiffe://carpal.internal/brain/brain-1"
        chunk = hand_pb2.ExecuteResponse(output=hand_pb2.OutputChunk(data=b"up"))
        await daemon.reply(request, last=False, execute=chunk)
        assert (await asking).output.data == b"up"
        await answers.aclose()
        async with asyncio.timeout(WAIT):
            assert await daemon.abandoned.get() == request.request_id
        await daemon.reply(request, execute=chunk)  # as the daemon had sent it before it knew
        described = connection.call("describe", hand_pb2.DescribeRequest())
        again = asyncio.ensure_future(anext(described))
        await daemon.reply(await daemon.next(), describe=hand_pb2.DescribeResponse(version="1"))
        assert (await again).version == "1"


async def test_another_brain_reaches_a_daemon_by_one_hop_and_never_by_two(one: Brain) -> None:
    async with brain(one.sessions, "brain-2") as two, linked(one) as daemon:
        await two.sees(lambda fleet: "d1" in fleet.directory.daemons)
        answers = (await two.fleet.connection("d1", "default")).call(
            "describe", hand_pb2.DescribeRequest()
        )
        asking = asyncio.ensure_future(anext(answers))
        request = await daemon.next()
        assert request.principal == "spiffe://carpal.internal/brain/brain-2"
        await daemon.reply(request, describe=hand_pb2.DescribeResponse(version="1"))
        assert (await asking).version == "1"
        await answers.aclose()
        async with two.asked_by(Role.BRAIN, "brain-1") as channel:
            stub = hand_pb2_grpc.HandStub(channel)
            with pytest.raises(CarpalError) as caught, rpc_errors("brain-2"):
                await stub.Probe(
                    hand_pb2.ProbeRequest(), metadata=(("carpal-daemon", "d1"),), timeout=WAIT
                )
            assert caught.value.reason is Reason.DAEMON_NOT_LINKED


async def test_a_save_asked_for_at_another_brain_streams_its_progress_and_its_answer(
    one: Brain,
) -> None:
    async with brain(one.sessions, "brain-2") as two, linked(one) as daemon:
        await two.sees(lambda fleet: "d1" in fleet.directory.daemons)
        asked = hand_pb2.SaveRequest(hand_id="h", save_id="s1")
        answers = (await two.fleet.connection("d1", "default")).call("save", asked)
        asking = asyncio.ensure_future(anext(answers))
        request = await daemon.next()
        assert request.save == asked
        progress = hand_pb2.ProvisionProgress(message="saving the workspace")
        told = hand_pb2.SaveResponse(progress=progress)
        await daemon.reply(request, last=False, save=told)
        assert await asking == told
        saved = hand_pb2.SaveResponse(saved=hand_pb2.Attachment(size=7, name="s1.tar"))
        await daemon.reply(request, save=saved)
        assert [each async for each in answers] == [saved]


async def test_a_relayed_call_must_name_its_daemon_and_come_from_a_brain(one: Brain) -> None:
    for role, reason in (
        (Role.BRAIN, Reason.INVALID_FIELD),
        (Role.OPERATOR, Reason.ROLE_NOT_ALLOWED),
    ):
        async with one.asked_by(role, "x") as channel:
            stub = hand_pb2_grpc.HandStub(channel)
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await stub.Probe(hand_pb2.ProbeRequest(), timeout=WAIT)
            assert caught.value.reason is reason
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await stub.Execute(hand_pb2.ExecuteRequest(), timeout=WAIT).read()
            assert caught.value.reason is reason


async def test_a_reply_to_what_nobody_asked_ends_the_link(one: Brain) -> None:
    async with linked(one) as daemon:
        await daemon.say(reply=pb.Reply(request_id=9, last=True))
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await daemon.ended()
    assert caught.value.reason is Reason.LINK_VIOLATION


@pytest.mark.parametrize("answer", [{}, {"claim": hand_pb2.ClaimResponse()}])
async def test_who_asked_for_what_was_answered_against_the_contract_is_told_so_and_others_not(
    one: Brain, answer: dict[str, Any]
) -> None:
    async with linked(one) as daemon:
        connection = await one.fleet.connection("d1", "default")
        asked = [
            connection.call("execute", hand_pb2.ExecuteRequest(call_id=each)) for each in ("c", "d")
        ]
        asking = [asyncio.ensure_future(anext(each)) for each in asked]
        first, _ = await daemon.next(), await daemon.next()
        await daemon.reply(first, **answer)
        reasons = []
        for each in asking:
            with pytest.raises(CarpalError) as caught:
                await each
            reasons.append(caught.value.reason)
        assert reasons == [Reason.LINK_VIOLATION, Reason.DAEMON_NOT_LINKED]
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await daemon.ended()
        assert caught.value.reason is Reason.LINK_VIOLATION
