"""Our load: one Append stream that keeps groups of one event in flight, as a brain does.

Each event is of its own session, as far as there are sessions, and all are under a lease.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bench.figures import DATA, Result, Watch
from carpal.ids import new_id
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

WAIT = 30.0
"""Seconds within which anything is answered, or sessiond hangs."""
_LEASE_SECONDS = 60
_WRITER_SECONDS = 90.0
"""How long a stream's writer waits for an ack: its RPC ends before, and says why."""
_GROUP = 1000
_GROUPS_IN_FLIGHT = 4


async def lease(stub: "SessionAsyncStub", session_id: str) -> int:
    """Create a session if it is not there, and take its lease; the epoch."""
    await stub.CreateSession(
        pb.CreateSessionRequest(session_id=session_id, workspace="default"), timeout=WAIT
    )
    request = pb.AcquireLeaseRequest(resource=f"session/{session_id}")
    request.term.FromSeconds(_LEASE_SECONDS)
    return (await stub.AcquireLease(request, timeout=WAIT)).lease.epoch


async def ours(
    stub: "SessionAsyncStub", in_flight: int, seconds: float, tail_all: bool = False
) -> Result:
    """So many sessions with one event in flight each; a live tail follows the first, or all."""
    names = [f"load-{number}" for number in range(in_flight)]
    epochs = {name: await lease(stub, name) for name in names}
    async with live_tail(stub, names if tail_all else names[:1]):
        return await _measured(stub, epochs, in_flight, seconds)


async def bare(stub: "SessionAsyncStub", in_flight: int, seconds: float) -> Result:
    """The same on a log that knows no session, no lease and no tail."""
    epochs = {f"load-{number}": 1 for number in range(in_flight)}
    return await _measured(stub, epochs, in_flight, seconds)


async def _measured(
    stub: "SessionAsyncStub", epochs: Mapping[str, int], in_flight: int, seconds: float
) -> Result:
    load = Load(stub, epochs, in_flight, seconds)
    await load.run()
    return load.watch.result()


class Load:
    """Keeps so many events in flight for some seconds, spread over the sessions."""

    def __init__(
        self, stub: "SessionAsyncStub", epochs: Mapping[str, int], in_flight: int, seconds: float
    ) -> None:
        self.watch = Watch(seconds)
        self.appended = 0
        """All events, also those that were not timed."""
        self._stub = stub
        self._sessions = deque(epochs.items())
        self._in_flight = in_flight
        self._frame = max(1, in_flight // 2)
        """Groups in a frame: while one half becomes durable the other is on its way."""
        self._sequence = 0
        self._sent: dict[int, float] = {}

    async def run(self) -> None:
        """Append until the time is over; RuntimeError when a group is refused."""
        deadline = self.watch.until - time.perf_counter() + WAIT
        call = self._stub.Append(timeout=deadline)
        while True:
            now = time.perf_counter()
            while len(self._sent) < self._in_flight and now < self.watch.until:
                await call.write(self._next(now))
            if not self._sent:
                break
            response = await call.read()
            if not isinstance(response, pb.AppendResponse):
                raise RuntimeError(f"the stream ended: {await call.details()}")
            now = time.perf_counter()
            for ack in response.acks:
                _check(ack)
                self.watch.note(self._sent.pop(ack.sequence), now)
            self.appended += len(response.acks)
        await call.done_writing()

    def _next(self, now: float) -> pb.AppendRequest:
        """As many groups as may go."""
        frame = pb.AppendRequest()
        while len(self._sent) < self._in_flight and len(frame.groups) < self._frame:
            self._sequence += 1
            self._sessions.rotate(1)
            session_id, epoch = self._sessions[0]
            event = types_pb2.NewEvent(id=new_id("sevt"), type="agent.message", data=DATA)
            frame.groups.add(
                sequence=self._sequence, session_id=session_id, events=[event], epoch=epoch
            )
            self._sent[self._sequence] = now
        return frame


async def fill(stub: "SessionAsyncStub", session_id: str, events: int, data: bytes) -> None:
    """Append so many events to one session as fast as large groups allow."""
    for start in range(0, events, 100 * _GROUP):  # the lease is taken anew before it can end
        epoch = await lease(stub, session_id)
        await _fill(stub, session_id, epoch, min(events - start, 100 * _GROUP), data)


async def _fill(
    stub: "SessionAsyncStub", session_id: str, epoch: int, events: int, data: bytes
) -> None:
    room = asyncio.Semaphore(_GROUPS_IN_FLIGHT)

    async def frames() -> AsyncIterator[pb.AppendRequest]:
        for sequence, start in enumerate(range(0, events, _GROUP), 1):
            async with asyncio.timeout(_WRITER_SECONDS):
                await room.acquire()
            group = types_pb2.AppendGroup(sequence=sequence, session_id=session_id, epoch=epoch)
            for _ in range(min(_GROUP, events - start)):
                group.events.add(id=new_id("sevt"), type="agent.message", data=data)
            yield pb.AppendRequest(groups=[group])

    async for response in stub.Append(frames(), timeout=_LEASE_SECONDS):
        for ack in response.acks:
            _check(ack)
            room.release()


@asynccontextmanager
async def live_tail(stub: "SessionAsyncStub", names: Sequence[str]) -> AsyncIterator[None]:
    """Someone follows these sessions until the block ends; RuntimeError if they see nothing."""
    live: set[str] = set()
    all_live = asyncio.Event()
    seen = 0

    async def follow() -> None:
        nonlocal seen
        request = pb.TailEventsRequest()
        for name in names:
            asked = pb.GetSessionRequest(session_id=name)
            head = (await stub.GetSession(asked, timeout=WAIT)).session.head
            request.cursors.add(session_id=name, after=head.position)
        async for response in stub.TailEvents(request):
            seen += len(response.events)
            if response.live:
                live.add(response.session_id)
                if len(live) == len(names):
                    all_live.set()

    following = asyncio.create_task(follow())
    waiting = asyncio.create_task(all_live.wait())
    try:
        await asyncio.wait({following, waiting}, timeout=WAIT, return_when="FIRST_COMPLETED")
        if not all_live.is_set():
            raise RuntimeError("the live tail did not become live")
        yield
    finally:
        following.cancel()
        waiting.cancel()
        await asyncio.wait({following, waiting}, timeout=WAIT)
        if not following.cancelled():
            following.result()  # why it ended
    if not seen:
        raise RuntimeError("the live tail saw no event")


def _check(ack: types_pb2.AppendAck) -> None:
    if ack.HasField("status"):
        raise RuntimeError(ack.status.message)
