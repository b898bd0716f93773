"""A lease holder in a process of its own, so that it can be stopped, continued and killed.

`python -m tests.robustness.holder IDENTITY ADDRESS SESSION TERM [idle]`: takes the session's
lease and says so. Then it appends one event after the other, and renews, until it is refused. It
does not give up at once: whatever a late holder may try, it tries, and says what became of it.
Every line on its standard output is one JSON object.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.duration_pb2 import Duration

from carpal.client import dial, from_rpc
from carpal.errors import from_status
from carpal.identity import Role
from carpal.tls import IdentityFiles
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

Call = Any
"""Of the stream Append."""


def say(**facts: object) -> None:
    """One line to whoever started this."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def outcome(call: Awaitable[object]) -> str:
    """`done`, or the reason why it was refused."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return from_rpc(error, "sessiond").reason.value
    return "done"


class Holder:
    """One hold of one session."""

    def __init__(self, stub: "SessionAsyncStub", session_id: str, epoch: int) -> None:
        self.stub = stub
        self.session_id = session_id
        self.resource = f"session/{session_id}"
        self.epoch = epoch
        self.count = 0

    def event(self) -> types_pb2.NewEvent:
        """One to append; the same until it was appended."""
        return types_pb2.NewEvent(id=f"held-{self.epoch}-{self.count}", type="agent.message")

    async def append(self, call: Call, sequence: int) -> str:
        """Append it over a stream."""
        group = types_pb2.AppendGroup(
            sequence=sequence, session_id=self.session_id, events=[self.event()], epoch=self.epoch
        )
        await call.write(pb.AppendRequest(groups=[group]))
        ((ack,),) = [(await call.read()).acks]
        return from_status(ack.status).reason.value if ack.HasField("status") else "done"

    async def emit(self) -> str:
        """Append it by itself."""
        return await outcome(
            self.stub.EmitEvent(
                pb.EmitEventRequest(
                    session_id=self.session_id, event=self.event(), epoch=self.epoch
                )
            )
        )

    async def renew(self) -> str:
        """Renew the lease."""
        ref = types_pb2.LeaseRef(resource=self.resource, epoch=self.epoch)
        (lease,) = (await self.stub.RenewLease(pb.RenewLeaseRequest(leases=[ref]))).leases
        return from_status(lease.status).reason.value if lease.HasField("status") else "done"

    async def release(self) -> str:
        """Give the lease up."""
        request = pb.ReleaseLeaseRequest(
            resource=self.resource, epoch=self.epoch, processed=self.count
        )
        return await outcome(self.stub.ReleaseLease(request))

    async def hold(self) -> None:
        """Until it is refused, and then some."""
        call = self.stub.Append()
        sequence, refusal = 0, "done"
        while refusal == "done":
            self.count += 1
            sequence += 1
            refusal = await self.append(call, sequence)
            if refusal == "done":
                say(appended=self.count)
            if self.count % 20 == 0:
                refusal = await self.renew()
        late = {"append": refusal, "append again": await self.append(call, sequence + 1)}
        for again in ("", " again"):
            late[f"append on a new stream{again}"] = await self.append(self.stub.Append(), 1)
            late[f"emit{again}"] = await self.emit()
            late[f"renew{again}"] = await self.renew()
            late[f"release{again}"] = await self.release()
        say(late=late)


async def main(identity: str, address: str, session_id: str, term: str, then: str = "") -> None:
    """Take the lease, say so, and hold it."""
    files = IdentityFiles(Path(identity))
    async with dial(address, Role.SESSIOND, files, retry=False) as channel:
        stub = SessionStub(channel)
        lasting = Duration()
        lasting.FromMilliseconds(int(float(term) * 1000))
        request = pb.AcquireLeaseRequest(resource=f"session/{session_id}", term=lasting)
        epoch = (await stub.AcquireLease(request)).lease.epoch
        say(epoch=epoch)
        if then == "idle":
            await asyncio.Event().wait()
        await Holder(stub, session_id, epoch).hold()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
