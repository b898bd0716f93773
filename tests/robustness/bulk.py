"""Many events at once: appended over one stream, by the thousand."""

import asyncio
from typing import TYPE_CHECKING

from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

GROUP = 500
WINDOW = 4


async def append(
    stub: "SessionAsyncStub", session_id: str, above: int, count: int, size: int
) -> None:
    """Append events to a session that has those up to `above`: e1, e2, … as positions say."""
    call = stub.Append()
    room = asyncio.Semaphore(WINDOW)

    async def send() -> None:
        for sequence in range(1, count // GROUP + 1):
            await room.acquire()
            first = above + (sequence - 1) * GROUP + 1
            events = [
                types_pb2.NewEvent(id=f"e{n}", type="user.message", data=b"x" * size)
                for n in range(first, first + GROUP)
            ]
            group = types_pb2.AppendGroup(sequence=sequence, session_id=session_id, events=events)
            await call.write(pb.AppendRequest(groups=[group]))
        await call.done_writing()

    async with asyncio.TaskGroup() as both:
        both.create_task(send())
        async for answer in call:
            for ack in answer.acks:
                assert not ack.HasField("status"), ack.status.message
                assert ack.position == above + (ack.sequence - 1) * GROUP + 1
                room.release()
