"""SIGSTOP, and SIGCONT when the world has moved on: what comes too late is refused."""

import asyncio
import signal
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from google.protobuf.duration_pb2 import Duration

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from tests.robustness.held import create, holder, take
from tests.robustness.ledger import whole
from tests.robustness.service import SECONDS, Service

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

TERM = 0.5


@pytest.mark.parametrize("taker", ["brain-2", "brain-1"], ids=["another", "of-the-same-name"])
async def test_s03_whatever_a_holder_does_that_was_stopped_past_its_lease_is_refused(
    each: Service, taker: str
) -> None:
    """Its append, its renewal, its release, and all of them again."""
    async with asyncio.timeout(SECONDS), each.brain(taker, each.names[-1]) as stub:
        await create(stub)
        async with holder(each, "sesn_1", TERM) as late:
            epoch = await late.says("epoch")
            await late.says("appended")
            late.signal(signal.SIGSTOP)
            taken = await take(stub, "sesn_1")
            assert taken.epoch > epoch
            event = types_pb2.NewEvent(id="taken", type="agent.message")
            emit = pb.EmitEventRequest(
                session_id="sesn_1", event=event, epoch=taken.epoch, wake=True
            )
            position = (await stub.EmitEvent(emit)).event.position
            late.signal(signal.SIGCONT)
            became = await late.says("late")
            await late.ended()
        assert became.pop("append again") == Reason.PRIOR_GROUP_REFUSED.value
        assert len(became) == 9
        assert set(became.values()) == {Reason.STALE_EPOCH.value}, became
        log = await whole(stub, "sesn_1")
        assert log[-1].position == position, "a late event got in"
        session = (await stub.GetSession(pb.GetSessionRequest(session_id="sesn_1"))).session
        assert session.lease.epoch == taken.epoch, "the taker's lease was touched"
        assert session.lease.HasField("expires_in"), "the taker's lease was ended"
        assert session.processed == 0, "a late release said what was processed"


async def test_while_sessiond_is_stopped_leases_run_out_by_the_stores_clock(one: Service) -> None:
    async with asyncio.timeout(SECONDS), one.brain() as stub, one.brain("brain-2") as other:
        await create(stub, "short")
        await create(stub, "long")
        short = await acquired(stub, "short", TERM)
        long = await acquired(stub, "long", 60.0)
        one.signal(signal.SIGSTOP)
        late = asyncio.create_task(append(stub, "short", short))
        in_time = asyncio.create_task(append(stub, "long", long))
        await asyncio.sleep(2 * TERM)  # how long it stands still is the fault
        assert not late.done()
        one.signal(signal.SIGCONT)
        assert await in_time is None
        assert await late is Reason.STALE_EPOCH
        assert await acquired(other, "short", TERM) > short
        with pytest.raises(CarpalError) as refused, rpc_errors("sessiond"):
            await acquired(other, "long", TERM)
        assert refused.value.reason is Reason.LEASE_HELD


async def acquired(stub: "SessionAsyncStub", session_id: str, term: float) -> int:
    lasting = Duration()
    lasting.FromTimedelta(timedelta(seconds=term))
    request = pb.AcquireLeaseRequest(resource=f"session/{session_id}", term=lasting)
    return (await stub.AcquireLease(request)).lease.epoch


async def append(stub: "SessionAsyncStub", session_id: str, epoch: int) -> Reason | None:
    event = types_pb2.NewEvent(id="e1", type="agent.message")
    try:
        with rpc_errors("sessiond"):
            await stub.EmitEvent(
                pb.EmitEventRequest(session_id=session_id, event=event, epoch=epoch)
            )
    except CarpalError as error:
        return error.reason
    return None
