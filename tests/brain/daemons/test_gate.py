"""Who may link: no daemon in quarantine at any brain, and no second machine of one name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2_grpc
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import Brain, Daemon, brain, linked
from tests.brain.stage import WAIT
from tests.pace import AT_ONCE
from tests.sessiond.serving import Serving

CLONE: dict[str, Any] = {"instance_id": "inst_2", "boot_id": "boot_2", "last_epoch": 0}


@pytest.fixture
async def one(sessions: Serving) -> AsyncIterator[Brain]:
    async with brain(sessions) as serving:
        yield serving


@asynccontextmanager
async def living(to: Brain, name: str = "d1", **hello: Any) -> AsyncIterator[Daemon]:
    """A daemon that is welcomed, and answers what it is asked."""
    async with linked(to, name, **hello) as daemon:

        async def answer() -> None:
            while True:
                request = await daemon.asked.get()
                await daemon.reply(request, describe=hand_pb2.DescribeResponse())

        answering = asyncio.create_task(answer())
        try:
            yield daemon
        finally:
            answering.cancel()


async def refused(to: Brain, **hello: Any) -> str:
    """Why a daemon in quarantine is not welcomed."""
    with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
        async with linked(to, **hello):
            pass
    assert caught.value.reason is Reason.DAEMON_QUARANTINED
    return str(caught.value)


async def decide(to: Brain, name: str = "d1", **wish: Any) -> pb.DaemonInfo:
    """As the operator."""
    async with to.asked_by(Role.OPERATOR, "ada") as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        with rpc_errors("the brain"):
            request = pb.QuarantineDaemonRequest(daemon_id=name, **wish)
            return (await stub.QuarantineDaemon(request, timeout=WAIT)).daemon


async def listed(to: Brain) -> pb.DaemonInfo:
    async with to.asked_by(Role.OPERATOR, "ada") as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        answer = await stub.ListDaemons(pb.ListDaemonsRequest(), timeout=WAIT)
    (told,) = answer.daemons
    return told


async def test_of_two_clones_the_second_is_quarantined_with_a_clear_reason_and_nothing_flaps(
    one: Brain, sessions: Serving
) -> None:
    """L28: at the brain that holds the first one's link, and at another."""
    async with brain(sessions, "brain-2") as two, living(one) as first:
        await two.sees(lambda fleet: "d1" in fleet.directory.daemons)
        for to in (two, one, two):
            why = await refused(to, **CLONE)
            assert "a copied machine has its identity while the first is linked" in why
            assert "carpal fleet quarantine d1 --lift" in why
            assert "carpal fleet revoke d1`" in why
        assert one.fleet.has("d1")
        assert not first.goodbye
        told = await listed(two)
        assert (told.state, "copied machine" in told.quarantine) == ("connected", True)
    await one.sees(lambda fleet: not fleet.has("d1"))
    # The first is away, and its clone is still refused; the first's daemon may be restarted.
    await refused(one, **CLONE)
    async with living(one, instance_id="inst_3"):
        assert one.fleet.has("d1")
    # After a restart of the machine, nobody can tell which one it is.
    await refused(one, instance_id="inst_4", boot_id="boot_3")
    await decide(one, lift=True)
    async with living(one, **CLONE):
        assert not (await listed(one)).quarantine


async def test_a_half_open_link_of_the_same_daemon_is_superseded_at_once(one: Brain) -> None:
    """L06: it is not asked whether it answers, which it cannot."""
    async with linked(one) as ghost:
        async with asyncio.timeout(AT_ONCE), linked(one) as daemon:
            assert daemon.welcome.epoch == ghost.welcome.epoch + 1
        assert ghost.asked.empty()


async def test_a_machine_that_takes_the_place_of_a_silent_one_is_welcomed(one: Brain) -> None:
    async with linked(one) as silent, living(one, journal_id="jrnl_2", **CLONE) as daemon:
        assert daemon.welcome.epoch == silent.welcome.epoch + 1
        await one.sees(lambda fleet: "newer link" in silent.goodbye)
        # It thaws, and finds that another has its place: it does not take it back.
        assert "another machine" in await refused(one)
        assert one.fleet.has("d1")


async def test_a_quarantined_daemon_is_cut_wherever_it_is_and_no_brain_takes_it_until_lifted(
    one: Brain, sessions: Serving
) -> None:
    async with brain(sessions, "brain-2") as two:
        async with linked(one) as here:
            told = await decide(one, reason="looks  taken\nover")
            assert (told.state, told.quarantine) == ("quarantined", "looks taken over")
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await here.ended()
            assert caught.value.reason is Reason.DAEMON_QUARANTINED
        for to in (one, two):
            assert "looks taken over" in await refused(to)
            assert (await listed(to)).state == "quarantined"
        await decide(two, lift=True)
        async with linked(one) as elsewhere:
            await two.sees(lambda fleet: fleet.directory.daemons["d1"].live)
            await decide(two)
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await elsewhere.ended()
            assert caught.value.reason is Reason.LINK_SUPERSEDED
        await refused(one)
        # Whoever cut it saw its end, and says why, though the link was another brain's.
        for asked in (one, two):
            await asked.sees(lambda fleet: not fleet.directory.daemons["d1"].live)
            newest = (await listed(asked)).links[0]
            assert (newest.why, newest.brain) == ("DAEMON_QUARANTINED", "brain-1")
            assert newest.HasField("ended")
        await decide(two, lift=True)
        async with linked(two):
            whys = [each.why for each in (await listed(two)).links]
            assert whys == ["DAEMON_QUARANTINED", "DAEMON_QUARANTINED"]
        await decide(two)
    # A brain that was not there when it was decided.
    async with brain(sessions, "brain-3") as three:
        await refused(three)


async def test_only_what_is_there_and_ones_own_is_quarantined(one: Brain) -> None:
    with pytest.raises(CarpalError) as caught:
        await decide(one, "nobody")
    assert caught.value.reason is Reason.DAEMON_NOT_FOUND
    async with linked(one, "theirs", "elsewhere"):
        with pytest.raises(CarpalError) as caught:
            await decide(one, "theirs")
        assert caught.value.reason is Reason.DAEMON_NOT_FOUND


async def test_a_daemon_that_claims_anothers_name_is_refused_by_its_certificate(one: Brain) -> None:
    """L31: the name counts that is in the certificate's URI."""
    async with linked(one, "d2"):
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            async with linked(one, says="d2"):
                pass
        assert caught.value.reason is Reason.NAME_MISMATCH
        assert caught.value.exit_code == 4
        assert one.fleet.has("d2")
        assert not one.fleet.has("d1")
