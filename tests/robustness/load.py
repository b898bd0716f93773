"""Clients that outlive whatever serves them: they reconnect, resend, and note what they were told.

For each session a driver (leases, an append stream) and a person (EmitEvent, with wakes); for all
of them one tail. How much they write is granted bit by bit, so that a test chooses the moments.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
from google.protobuf.duration_pb2 import Duration

from carpal.client import from_rpc
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from tests.robustness.ledger import Ledger, data_of
from tests.robustness.service import SECONDS, Service

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

WINDOW = 8
"""Groups on the way."""
TERM = 60


class Pace:
    """How many events may be written, and how many were acknowledged."""

    def __init__(self) -> None:
        self.granted = self.taken = self.acked = 0
        self._moved = asyncio.Event()

    def moved(self, granted: int = 0, acked: int = 0) -> None:
        """It went on."""
        self.granted += granted
        self.acked += acked
        self._moved.set()

    async def take(self, most: int) -> int:
        """Leave to write some events, one at least."""
        await self.until(lambda: self.granted > self.taken)
        count = min(most, self.granted - self.taken)
        self.taken += count
        return count

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something about it to be true."""
        while not holds():
            self._moved.clear()
            await self._moved.wait()


@dataclass
class Driver:
    """Holds the session's lease and appends to it."""

    ledger: Ledger
    pace: Pace
    chance: random.Random
    letter: str = "a"
    _unacked: list[str] = field(default_factory=list)
    """In the order sent; they are sent again, one by one, before anything new."""

    async def drive(self, stub: "SessionAsyncStub") -> None:
        """One hold of the lease, until it is given up; raises when the service goes away."""
        ledger, resource = self.ledger, f"session/{self.ledger.session_id}"
        before = ledger.epoch
        request = pb.AcquireLeaseRequest(resource=resource, term=Duration(seconds=TERM))
        ledger.granted((await stub.AcquireLease(request)).lease.epoch)
        if before:
            await _refused(stub, ledger.session_id, before)
        last = await self._append(stub, self.chance.randrange(20, 2000))
        ref = types_pb2.LeaseRef(resource=resource, epoch=ledger.epoch)
        (renewed,) = (await stub.RenewLease(pb.RenewLeaseRequest(leases=[ref]))).leases
        assert not renewed.HasField("status"), renewed.status.message
        await stub.ReleaseLease(
            pb.ReleaseLeaseRequest(resource=resource, epoch=ledger.epoch, processed=last)
        )
        ledger.processed = max(ledger.processed, last)

    async def _append(self, stub: "SessionAsyncStub", count: int) -> int:
        """Append about so many events over one stream; the position of the last."""
        call = stub.Append()
        in_flight: deque[list[str]] = deque()
        room = asyncio.Semaphore(WINDOW)
        sending = asyncio.create_task(self._send(call, in_flight, room, count))
        last, sequence = 0, 0
        try:
            async for answer in call:
                for ack in answer.acks:
                    sequence += 1
                    assert ack.sequence == sequence
                    assert not ack.HasField("status"), ack.status.message
                    ids = in_flight.popleft()
                    del self._unacked[: len(ids)]
                    self.pace.moved(acked=self.ledger.acknowledged(ids, ack.position))
                    last = max(last, ack.position + len(ids) - 1)
                    room.release()
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            call.cancel()
        if not sending.cancelled():
            sending.result()
        return last

    async def _send(
        self,
        call: "grpc.aio.StreamStreamCall[pb.AppendRequest, pb.AppendResponse]",
        in_flight: deque[list[str]],
        room: asyncio.Semaphore,
        count: int,
    ) -> None:
        sequence, again = 0, deque(self._unacked)
        try:
            while count > 0:
                await room.acquire()
                ids = [again.popleft()] if again else await self._new()
                sequence += 1
                count -= len(ids)
                in_flight.append(ids)
                group = types_pb2.AppendGroup(
                    sequence=sequence,
                    session_id=self.ledger.session_id,
                    events=[_event(id, "agent.message") for id in ids],
                    epoch=self.ledger.epoch,
                )
                await call.write(pb.AppendRequest(groups=[group]))
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # whoever reads the answers is told why

    async def _new(self) -> list[str]:
        ids = [self.ledger.next(self.letter) for _ in range(await self.pace.take(3))]
        self._unacked += ids
        return ids


@dataclass
class Person:
    """Says one thing after the other, each until it is acknowledged."""

    ledger: Ledger
    pace: Pace
    letter: str = "b"
    _saying: str = ""

    async def say(self, stub: "SessionAsyncStub") -> None:
        """For ever; raises when the service goes away."""
        while True:
            if not self._saying:
                await self.pace.take(1)
                self._saying = self.ledger.next(self.letter)
            request = pb.EmitEventRequest(
                session_id=self.ledger.session_id,
                event=_event(self._saying, "user.message"),
                wake=True,
            )
            position = (await stub.EmitEvent(request)).event.position
            self.pace.moved(acked=self.ledger.acknowledged([self._saying], position))
            self.ledger.woken = max(self.ledger.woken, position)
            self._saying = ""


@dataclass
class Tail:
    """Follows some sessions from their first event on, through everything."""

    seen: dict[str, list[tuple[str, bytes]]]
    """By session id: (event id, hash) at position 1, 2, …"""
    moved: Callable[[], None] = lambda: None

    async def follow(self, stub: "SessionAsyncStub") -> None:
        """For ever; raises when the service goes away."""
        cursors = [
            types_pb2.TailCursor(session_id=session_id, after=len(seen))
            for session_id, seen in self.seen.items()
        ]
        async for answer in stub.TailEvents(pb.TailEventsRequest(cursors=cursors)):
            seen = self.seen[answer.session_id]
            for event in answer.events:
                assert event.position == len(seen) + 1, "a gap, or a repeat"
                seen.append((event.id, event.hash))
            self.moved()


class Load:
    """All of them, on a few sessions."""

    def __init__(self, service: Service, chance: random.Random, sessions: int = 3) -> None:
        self.service = service
        self.chance = chance
        self.pace = Pace()
        self.ledgers = [Ledger(f"sesn_{number}") for number in range(1, sessions + 1)]
        self.tail = Tail({ledger.session_id: [] for ledger in self.ledgers}, self.pace.moved)

    async def write(self) -> None:
        """Grant some more, and wait until a part of it is acknowledged: a moment like any other."""
        more = self.chance.randrange(20, 400)
        goal = self.pace.acked + self.chance.randrange(1, more)
        self.pace.moved(granted=more)
        async with asyncio.timeout(SECONDS):
            await self.pace.until(lambda: self.pace.acked >= goal)

    async def check(self) -> None:
        """All that was sent is acknowledged by now, and there; the tail has seen it."""
        pace = self.pace
        async with asyncio.timeout(SECONDS):
            await pace.until(lambda: pace.acked == pace.taken == pace.granted)
            for ledger in self.ledgers:
                seen = self.tail.seen[ledger.session_id]
                request = pb.GetSessionRequest(session_id=ledger.session_id)
                got = await self.service.persist(lambda stub, it=request: stub.GetSession(it))  # type: ignore[misc]
                head = got.session.head.position
                await pace.until(lambda seen=seen, head=head: len(seen) >= head)  # type: ignore[misc]
                await self.service.persist(
                    lambda stub, ledger=ledger, seen=seen: ledger.check(stub, seen)  # type: ignore[misc]
                )
        assert all(ledger.acked for ledger in self.ledgers), "some session got nothing"


@asynccontextmanager
async def load(service: Service, chance: random.Random) -> AsyncIterator[Load]:
    """A load that goes on while the block runs; whatever goes wrong in it ends the block."""
    made = Load(service, chance)
    for ledger in made.ledgers:
        new = pb.CreateSessionRequest(session_id=ledger.session_id, workspace="default")
        await service.persist(lambda stub, new=new: stub.CreateSession(new))  # type: ignore[misc]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_always(service, made.tail.follow, 1))]
            for number, ledger in enumerate(made.ledgers):
                driver = Driver(ledger, made.pace, random.Random(chance.random()))
                person = Person(ledger, made.pace)
                tasks.append(group.create_task(_always(service, driver.drive, number)))
                tasks.append(group.create_task(_always(service, person.say, number + 1)))
            yield made
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors  # what came first; the rest was cancelled


async def _always(
    service: Service, body: Callable[["SessionAsyncStub"], Awaitable[None]], first: int
) -> None:
    while True:
        await service.persist(body, first=first)


async def _refused(stub: "SessionAsyncStub", session_id: str, epoch: int) -> None:
    """The epoch before the newest appends nothing."""
    event = _event("z1", "agent.message")
    try:
        await stub.EmitEvent(pb.EmitEventRequest(session_id=session_id, event=event, epoch=epoch))
    except grpc.aio.AioRpcError as error:
        refusal = from_rpc(error, "sessiond")
        if refusal.reason is not Reason.STALE_EPOCH:
            raise
    else:
        raise AssertionError(f"epoch {epoch} is not the newest, and appended")


def _event(id: str, type: str) -> types_pb2.NewEvent:
    return types_pb2.NewEvent(id=id, type=type, data=data_of(id))
