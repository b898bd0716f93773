"""What operators see of their workspace, and nothing of another's."""

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest

from brain.daemons.fleet import Fleet
from carpal.client import rpc_errors
from carpal.errors import CarpalError, refuse, to_status
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import Brain, Daemon, brain, linked
from tests.brain.stage import WAIT, create
from tests.sessiond.serving import Serving


@pytest.fixture
async def one(sessions: Serving) -> AsyncIterator[Brain]:
    """A brain that serves."""
    async with brain(sessions) as serving:
        yield serving


@pytest.fixture
async def ada(one: Brain) -> AsyncIterator[Any]:
    """The orchestrator, as an operator of the default workspace."""
    async with one.asked_by(Role.OPERATOR, "ada") as channel:
        yield orchestrator_pb2_grpc.OrchestratorStub(channel)


@pytest.fixture
async def eve(one: Brain) -> AsyncIterator[Any]:
    """The orchestrator, as an operator of another workspace."""
    async with one.asked_by(Role.OPERATOR, "eve", "elsewhere") as channel:
        yield orchestrator_pb2_grpc.OrchestratorStub(channel)


async def refused(asking: Any) -> Reason:
    """Why."""
    with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
        await asking
    return caught.value.reason


async def test_daemons_are_listed_to_their_workspace_alone(one: Brain, ada: Any, eve: Any) -> None:
    async with linked(one):
        listed = await ada.ListDaemons(pb.ListDaemonsRequest(), timeout=WAIT)
        (told,) = listed.daemons
        assert (told.daemon_id, told.state, told.brain) == ("d1", "connected", "brain-1")
        assert (list(told.types), told.capacity.hands_max) == (["process"], 4)
        assert not (await eve.ListDaemons(pb.ListDaemonsRequest(), timeout=WAIT)).daemons
    await one.sees(lambda fleet: not fleet.has("d1"))
    await one.sees(lambda fleet: [d.state for d in fleet.daemons("default")] == ["gone"])


async def test_an_operator_may_not_name_another_workspace_and_a_brain_must_name_one(
    one: Brain, ada: Any, eve: Any
) -> None:
    theirs = pb.ListDaemonsRequest(workspace="default")
    assert await refused(eve.ListDaemons(theirs, timeout=WAIT)) is Reason.ROLE_NOT_ALLOWED
    hands = pb.OrchestratorListHandsRequest(workspace="default")
    assert await refused(eve.ListHands(hands, timeout=WAIT)) is Reason.ROLE_NOT_ALLOWED
    assert not (await ada.ListDaemons(theirs, timeout=WAIT)).daemons
    async with one.asked_by(Role.BRAIN, "brain-2") as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        nothing = stub.ListDaemons(pb.ListDaemonsRequest(), timeout=WAIT)
        assert await refused(nothing) is Reason.INVALID_FIELD
        assert not (await stub.ListDaemons(theirs, timeout=WAIT)).daemons


async def test_another_workspaces_session_is_not_there_to_wake_or_watch(
    one: Brain, ada: Any, eve: Any
) -> None:
    await create(one.sessions)
    event = types_pb2.NewEvent(id="sevt_9", type="user.message", data=b'{"content":[]}')
    wake = pb.WakeRequest(session_id="sesn_1", event=event)
    assert await refused(eve.Wake(wake, timeout=WAIT)) is Reason.SESSION_NOT_FOUND
    watch = eve.Watch(pb.WatchRequest(session_id="sesn_1"), timeout=WAIT)
    assert await refused(watch.read()) is Reason.SESSION_NOT_FOUND
    assert (await ada.Wake(wake, timeout=WAIT)).event.position == 3


async def test_moments_reach_a_watcher_here_and_at_another_brain(one: Brain, ada: Any) -> None:
    await create(one.sessions)
    async with brain(one.sessions, "brain-2") as two:
        lease, _ = await two.keeper.acquire("session/sesn_1")
        watch = ada.Watch(pb.WatchRequest(session_id="sesn_1"), timeout=WAIT)
        async with asyncio.timeout(WAIT):
            while not (one.hub._watchers and two.hub._watchers):
                await one.fleet.directory.wait_change(0.02)
        two.hub.tell("sesn_1", pb.WatchResponse(phase=pb.Phase(name="model")))
        assert (await watch.read()).phase.name == "model"
        one.hub.tell("sesn_1", pb.WatchResponse(phase=pb.Phase(name="idle")))
        assert (await watch.read()).phase.name == "idle"
        watch.cancel()
        await two.keeper.release(lease)


async def test_hands_are_listed_and_daemons_that_do_not_say_are_named(one: Brain, ada: Any) -> None:
    async with linked(one) as daemon, linked(one, "d2") as silent:
        asking = asyncio.ensure_future(
            ada.ListHands(pb.OrchestratorListHandsRequest(session_id="s"), timeout=WAIT)
        )
        request = await daemon.next()
        assert request.list_hands.session_id == "s"
        info = hand_pb2.HandInfo(hand_id="hand_1")
        await daemon.reply(request, list_hands=hand_pb2.ListHandsResponse(hands=[info]))
        await silent.next()
        silent.cut()
        answer = await asking
    assert [(h.hand_id, h.daemon_id) for h in answer.hands] == [("hand_1", "d1")]
    assert list(answer.missing) == ["d2"]


async def answers_drain(daemon: Daemon, *, draining: bool) -> pb.DrainHandsRequest:
    """The daemon does as it is told."""
    request = await daemon.next()
    capacity = pb.Capacity(hands_max=4, hands=2, draining=draining)
    await daemon.reply(request, drain_hands=pb.DrainHandsResponse(capacity=capacity))
    return request.drain_hands


async def test_a_drained_daemon_is_shown_draining_and_not_gone_at_every_brain_l14(
    one: Brain, ada: Any
) -> None:
    async with brain(one.sessions, "brain-2") as two, linked(two) as daemon:
        await one.sees(lambda fleet: bool(fleet.daemons("default")))
        drain = pb.DrainDaemonRequest(daemon_id="d1", reason="new disk")
        asking = asyncio.ensure_future(ada.DrainDaemon(drain, timeout=WAIT))
        assert (await answers_drain(daemon, draining=True)).reason == "new disk"
        assert (await asking).daemon.state == "draining"
        (told,) = (await ada.ListDaemons(pb.ListDaemonsRequest(), timeout=WAIT)).daemons
        assert (told.state, told.brain, told.capacity.hands) == ("draining", "brain-2", 2)
        drain.lift = True
        asking = asyncio.ensure_future(ada.DrainDaemon(drain, timeout=WAIT))
        assert (await answers_drain(daemon, draining=False)).lift
        assert (await asking).daemon.state == "connected"


async def test_a_daemon_that_is_gone_unknown_or_anothers_cannot_be_drained(
    one: Brain, ada: Any, eve: Any
) -> None:
    drain = pb.DrainDaemonRequest(daemon_id="d1")
    assert await refused(ada.DrainDaemon(drain, timeout=WAIT)) is Reason.DAEMON_NOT_FOUND
    async with linked(one):
        assert await refused(eve.DrainDaemon(drain, timeout=WAIT)) is Reason.DAEMON_NOT_FOUND
    await one.sees(lambda fleet: [d.state for d in fleet.daemons("default")] == ["gone"])
    assert await refused(ada.DrainDaemon(drain, timeout=WAIT)) is Reason.DAEMON_NOT_LINKED


async def test_a_brain_that_is_asked_by_another_does_not_ask_a_third(one: Brain) -> None:
    async with brain(one.sessions, "brain-2") as two, linked(two):
        await one.sees(lambda fleet: bool(fleet.daemons("default")))
        async with one.asked_by(Role.BRAIN, "brain-3") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            drain = pb.DrainDaemonRequest(daemon_id="d1", workspace="default")
            assert await refused(stub.DrainDaemon(drain, timeout=WAIT)) is Reason.DAEMON_NOT_LINKED


async def answers_get(daemon: Daemon) -> None:
    """A daemon that says how its types stand: one is ready, one broken."""
    types = [
        hand_pb2.HandTypeInfo(type="process", capabilities=["claim"]),
        hand_pb2.HandTypeInfo(type="android", units=[hand_pb2.UnitInfo(unit_id="phone")]),
    ]
    request = await daemon.next()
    assert request.HasField("describe")
    await daemon.reply(request, describe=hand_pb2.DescribeResponse(types=types))
    for _ in types:
        request = await daemon.next()
        if request.probe.type == "android":
            await daemon.reply(request, status=to_status(refuse(Reason.INTERNAL, "no adb")))
            continue
        ready = hand_pb2.ProbeResponse(
            state=hand_pb2.PROBE_STATE_READY, not_enforceable=["disk_bytes"]
        )
        await daemon.reply(request, probe=ready)
    request = await daemon.next()
    hands = [hand_pb2.HandInfo(hand_id="hand_1", type="process", session_ids=["sesn_1"])]
    await daemon.reply(request, list_hands=hand_pb2.ListHandsResponse(hands=hands))


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_daemon_is_shown_with_its_types_and_hands_asked_now_wherever_its_link_is(
    one: Brain, ada: Any, where: str
) -> None:
    async with (
        brain(one.sessions, "brain-2") as two,
        linked(one if where == "here" else two, released="2026-11-30") as daemon,
    ):
        await one.sees(lambda fleet: bool(fleet.daemons("default")))
        asked = pb.GetDaemonRequest(daemon_id="d1")
        asking = asyncio.ensure_future(ada.GetDaemon(asked, timeout=WAIT))
        await answers_get(daemon)
        told = await asking
    assert not told.unanswered
    info = told.daemon
    assert (info.state, info.brain) == ("connected", "brain-1" if where == "here" else "brain-2")
    assert info.identity == "spiffe://carpal.internal/daemon/d1"
    assert int(info.certificate_serial, 16) > 0
    assert info.certificate_begins.seconds < info.linked_since.seconds
    assert info.linked_since.seconds < info.certificate_expires.seconds
    assert (info.protocol_min, info.protocol_max) == (1, 1)
    assert info.supported_until.ToDatetime().date() == date(2027, 11, 30)
    android, process = told.types
    assert (process.type, process.state) == ("process", hand_pb2.PROBE_STATE_READY)
    assert (process.not_enforceable, process.capabilities) == (["disk_bytes"], ["claim"])
    assert (android.state, android.reason) == (hand_pb2.PROBE_STATE_BROKEN, "no adb")
    assert [unit.unit_id for unit in android.units] == ["phone"]
    assert [(h.hand_id, h.daemon_id, *h.session_ids) for h in told.hands] == [
        ("hand_1", "d1", "sesn_1")
    ]


async def test_of_a_daemon_that_is_gone_all_is_told_that_its_lease_says_and_its_last_links(
    one: Brain, ada: Any
) -> None:
    def gone(fleet: Fleet) -> bool:
        return [d.state for d in fleet.daemons("default")] == ["gone"]

    async with brain(one.sessions, "brain-2") as two:
        for _ in range(2):
            async with linked(one):
                await two.sees(lambda fleet: fleet.daemons("default")[:1] != [] and not gone(fleet))
            await two.sees(gone)
        async with two.asked_by(Role.OPERATOR, "ada") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            told = await stub.GetDaemon(pb.GetDaemonRequest(daemon_id="d1"), timeout=WAIT)
    assert told.unanswered == "it is not linked"
    assert [each.type for each in told.types] == ["process"]
    info = told.daemon
    assert info.state == "gone"
    assert not info.HasField("linked_since")
    assert info.last_seen.seconds >= info.links[0].began.seconds > 0
    assert [(each.brain, each.why, each.HasField("ended")) for each in info.links] == [
        ("brain-1", "cut", True),
        ("brain-1", "cut", True),
    ]


async def test_a_hello_that_was_refused_is_told_with_the_reason(one: Brain, ada: Any) -> None:
    async with linked(one):
        pass
    with pytest.raises(CarpalError), rpc_errors("the brain"):
        async with linked(one, says="d2"):
            pass
    told = await ada.GetDaemon(pb.GetDaemonRequest(daemon_id="d1"), timeout=WAIT)
    (row,) = told.daemon.refused
    assert (row.reason, row.brain) == ("NAME_MISMATCH", "brain-1")


async def test_a_daemon_of_another_workspace_is_not_shown(one: Brain, eve: Any) -> None:
    async with linked(one):
        asked = pb.GetDaemonRequest(daemon_id="d1")
        assert await refused(eve.GetDaemon(asked, timeout=WAIT)) is Reason.DAEMON_NOT_FOUND
