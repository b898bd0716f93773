"""Two brains want one session: one has it, and only that one is obeyed."""

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from google.protobuf.duration_pb2 import Duration

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from tests.pace import SCALE, times
from tests.robustness.held import create, holder
from tests.robustness.ledger import whole
from tests.robustness.service import BRAINS, SECONDS, Service

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

pytestmark = pytest.mark.slow

RESOURCE = "session/sesn_1"
TERM = 1.0


async def test_s02_of_two_brains_that_wake_one_session_one_wins_and_the_losers_appends_are_refused(
    each: Service,
) -> None:
    """On a database each brain asks another sessiond."""
    rounds = times(50, 1000)
    async with (
        asyncio.timeout(SECONDS + rounds),
        each.brain(BRAINS[0], each.names[0]) as one,
        each.brain(BRAINS[1], each.names[-1]) as two,
    ):
        await create(one)
        wins = [0, 0]
        for number in range(rounds):
            answers = await asyncio.gather(acquire(one), acquire(two))
            assert sum(isinstance(answer, int) for answer in answers) == 1, answers
            winner = 0 if isinstance(answers[0], int) else 1
            epoch, refusal = answers[winner], answers[1 - winner]
            assert isinstance(epoch, int)
            assert refusal is Reason.LEASE_HELD
            wins[winner] += 1
            stubs = (one, two)
            # The loser knows the winner's epoch, say, or makes up a higher one.
            appended = await asyncio.gather(
                append(stubs[winner], f"won-{number}", epoch),
                append(stubs[1 - winner], f"lost-{number}", epoch),
                append(stubs[1 - winner], f"lost-{number}", epoch + 1),
                append(stubs[1 - winner], f"lost-{number}", epoch - 1),
            )
            assert list(appended) == [None, *[Reason.STALE_EPOCH] * 3]
            assert await release(stubs[1 - winner], epoch) is Reason.STALE_EPOCH
            assert await release(stubs[winner], epoch) is None
        log = await whole(one, "sesn_1")
        assert [event.id for event in log] == [f"won-{number}" for number in range(rounds)]
        sources = [event.source.rpartition("/")[2] for event in log]
        assert [sources.count(brain) for brain in BRAINS] == wins


async def test_s06_a_session_whose_brain_died_before_it_did_anything_is_runnable_within_a_term(
    each: Service,
) -> None:
    async with asyncio.timeout(SECONDS), each.brain("brain-2", each.names[-1]) as stub:
        await create(stub)
        said = types_pb2.NewEvent(id="said", type="user.message")
        await stub.EmitEvent(pb.EmitEventRequest(session_id="sesn_1", event=said, wake=True))
        async with holder(each, "sesn_1", TERM, idle=True) as dead:
            await dead.says("epoch")
            loop = asyncio.get_running_loop()
            granted = loop.time()  # or a little before
            dead.signal(signal.SIGKILL)
            await dead.ended()
            offers = stub.WatchRunnable(pb.WatchRunnableRequest())
            async for answer in offers:
                if any(offer.session_id == "sesn_1" for offer in answer.sessions):
                    if isinstance(answered := await acquire(stub), int):
                        break
                    assert answered is Reason.LEASE_HELD  # an offer is no promise
            waited = loop.time() - granted
            offers.cancel()
        assert waited < TERM + 1.0 * SCALE
        assert (await whole(stub, "sesn_1"))[-1].id == "said", "it did nothing"


async def acquire(stub: "SessionAsyncStub") -> int | Reason:
    try:
        with rpc_errors("sessiond"):
            request = pb.AcquireLeaseRequest(resource=RESOURCE, term=Duration(seconds=60))
            return (await stub.AcquireLease(request)).lease.epoch
    except CarpalError as error:
        return error.reason


async def append(stub: "SessionAsyncStub", id: str, epoch: int) -> Reason | None:
    event = types_pb2.NewEvent(id=id, type="agent.message")
    try:
        with rpc_errors("sessiond"):
            await stub.EmitEvent(pb.EmitEventRequest(session_id="sesn_1", event=event, epoch=epoch))
    except CarpalError as error:
        return error.reason
    return None


async def release(stub: "SessionAsyncStub", epoch: int) -> Reason | None:
    try:
        with rpc_errors("sessiond"):
            await stub.ReleaseLease(pb.ReleaseLeaseRequest(resource=RESOURCE, epoch=epoch))
    except CarpalError as error:
        return error.reason
    return None
