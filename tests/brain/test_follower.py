"""A watcher is told what another brain's session does, or that it will not be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest

from brain.daemons.hands_at import Peers
from brain.follower import Follower
from brain.session.watch import Moments
from carpal.identity import Role
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc
from tests.brain.serving import Brain, brain
from tests.brain.stage import ME, WAIT, create
from tests.fault_proxy import fault_proxy
from tests.hands.place import until
from tests.sessiond.serving import Serving


@pytest.fixture
async def driving(sessions: Serving) -> AsyncIterator[Brain]:
    """A brain that drives session `sesn_1`."""
    await create(sessions)
    async with brain(sessions, "brain-2") as two:
        yield two


async def test_a_relay_that_breaks_is_made_again_while_the_other_brain_goes_on(
    sessions: Serving, driving: Brain
) -> None:
    async with fault_proxy(driving.address) as proxy, brain(sessions) as one:
        driving.keeper.address = proxy.address
        await driving.keeper.acquire("session/sesn_1")
        async with one.asked_by(Role.OPERATOR, "ada") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            watch = stub.Watch(pb.WatchRequest(session_id="sesn_1"), timeout=WAIT)
            for phase in ("before", "after"):
                await until(lambda: driving.hub._watchers, "nobody watches there")
                driving.hub.tell("sesn_1", pb.WatchResponse(phase=pb.Phase(name=phase)))
                came: Any = await watch.read()
                assert came.phase.name == phase
                before = driving.hub._watchers["sesn_1"]
                proxy.cut()
                await until(lambda: not before, "it did not leave")  # noqa: B023 - waited for here
            watch.cancel()


class Broken:
    """Ways to other brains, with a fault."""

    async def orchestrator(self, _address: str) -> Any:
        """Fails as nobody expects."""
        raise RuntimeError("a fault")


async def test_a_watch_whose_follower_dies_ends_and_says_why(
    sessions: Serving, driving: Brain
) -> None:
    await driving.keeper.acquire("session/sesn_1")
    follower = Follower(await sessions.brain(), cast("Peers", Broken()), ME.uri)
    with pytest.raises(ExceptionGroup) as caught:
        async with (
            asyncio.timeout(WAIT),
            aclosing(follower.each("sesn_1", Moments())) as given,
        ):
            await anext(given)
    assert caught.group_contains(RuntimeError, match="a fault")
