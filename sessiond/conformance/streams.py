"""The contract's streams, as checks read and write them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Generic, TypeVar

import grpc

from carpal.upload import Upload
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import Failed, equal, must

M = TypeVar("M")
Request = TypeVar("Request")


class Reading(Generic[M]):
    """A stream of messages that is not expected to end."""

    def __init__(self, call: "grpc.aio.UnaryStreamCall[Any, M]") -> None:
        self._call = call
        self._messages: AsyncIterator[M] = aiter(call)

    async def next(self) -> M:
        """The next message; Failed when the stream ends instead."""
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            raise Failed("the stream ended by itself") from None

    def cancel(self) -> None:
        """Hang up."""
        self._call.cancel()


async def uploaded(call: "grpc.aio.StreamUnaryCall[Request, M]", messages: Iterable[Request]) -> M:
    """The answer to a stream of messages, or its refusal, whenever it comes."""
    upload = Upload(call)
    try:
        for message in messages:
            if not await upload.send(message):
                break
        return await upload.answer()
    finally:
        upload.close()


class Lane:
    """One Append stream."""

    def __init__(
        self, call: "grpc.aio.StreamStreamCall[pb.AppendRequest, pb.AppendResponse]"
    ) -> None:
        self._call = call
        self._sequence = 0
        self._acks: list[types_pb2.AppendAck] = []

    async def send(
        self,
        session_id: str,
        *events: types_pb2.NewEvent,
        epoch: int | None = None,
        wake: bool = False,
    ) -> int:
        """Send one group in a frame of its own, without waiting; its sequence."""
        group = self.group(session_id, events, epoch=epoch, wake=wake)
        await self.write([group])
        return group.sequence

    def group(
        self,
        session_id: str,
        events: Iterable[types_pb2.NewEvent],
        *,
        epoch: int | None = None,
        wake: bool = False,
    ) -> types_pb2.AppendGroup:
        """The stream's next group, to be written with others."""
        self._sequence += 1
        return types_pb2.AppendGroup(
            sequence=self._sequence, session_id=session_id, events=events, epoch=epoch, wake=wake
        )

    async def write(self, groups: Iterable[types_pb2.AppendGroup]) -> None:
        """Send one frame; a stream that ended before raises the reason."""
        try:
            await self._call.write(pb.AppendRequest(groups=groups))
        except (grpc.RpcError, asyncio.InvalidStateError):
            await self._call.read()  # raises why the stream ended; the write only that it did
            raise

    async def ack(self) -> types_pb2.AppendAck:
        """The next group's ack, whatever it says."""
        while not self._acks:
            response = await self._call.read()
            if not isinstance(response, pb.AppendResponse):
                await self._call.code()
                raise Failed(f"the stream ended without an ack: {await self._call.details()}")
            self._acks.extend(response.acks)
        return self._acks.pop(0)

    async def acked(self, count: int = 1) -> list[int]:
        """Positions of the next groups, none of which may be refused."""
        positions = []
        for _ in range(count):
            ack = await self.ack()
            if ack.HasField("status"):
                raise Failed(f"group {ack.sequence} was refused: {ack.status.message}")
            positions.append(ack.position)
        return positions

    async def refusal(self) -> types_pb2.AppendAck:
        """The next ack, which must be a refusal."""
        ack = await self.ack()
        if not ack.HasField("status"):
            raise Failed(f"group {ack.sequence} was not refused")
        return ack

    def cancel(self) -> None:
        """Cut the stream."""
        self._call.cancel()


class Tail:
    """One TailEvents stream: what it sent of each session, which must have no gap or repeat."""

    def __init__(
        self, reading: Reading[pb.TailEventsResponse], cursors: dict[str, int], *, whole: bool
    ) -> None:
        self._reading = reading
        self._whole = whole
        self._last = dict(cursors)
        self.events: dict[str, list[types_pb2.Event]] = {id: [] for id in cursors}
        self.live: dict[str, int] = {}
        """The head at the first `live` mark of a session."""

    async def read(self) -> pb.TailEventsResponse:
        """The next message, held to the order of positions."""
        message = await self._reading.next()
        if message.session_id not in self.events:
            raise Failed(f"the tail speaks of session {message.session_id!r}")
        for event in message.events:
            last = self._last[message.session_id]
            if self._whole:
                equal("the position after the last one", event.position, last + 1)
            elif event.position <= last:
                raise Failed(f"position {event.position} came after {last}")
            self._last[message.session_id] = event.position
            self.events[message.session_id].append(event)
        if message.live:
            self.live.setdefault(message.session_id, message.head)
        return message

    async def until(self, done: Callable[["Tail"], bool]) -> None:
        """Read until it is so."""
        while not done(self):
            await self.read()

    async def until_live(self) -> None:
        """Read until every session is marked live."""
        await self.until(lambda tail: len(tail.live) == len(tail.events))

    async def until_position(self, session_id: str, position: int) -> None:
        """Read until a session's event of that position was sent."""
        await self.until(lambda tail: tail._last[session_id] >= position)

    def cancel(self) -> None:
        """Hang up."""
        self._reading.cancel()


class Offers:
    """One WatchRunnable stream."""

    def __init__(self, reading: Reading[pb.WatchRunnableResponse]) -> None:
        self._reading = reading
        self.seen: dict[str, types_pb2.RunnableSession] = {}
        """The newest offer of each session."""

    async def until(
        self, session_id: str, *, tries: int = 0, wake: int = 0
    ) -> types_pb2.RunnableSession:
        """Read until the session is offered anew, after that many tries, for that wake; the offer.

        Offers may be late or repeated, so one of fewer tries or an earlier wake is not yet it.
        """
        while True:
            message = await self._reading.next()
            self.seen.update({offer.session_id: offer for offer in message.sessions})
            for offer in message.sessions:
                new = offer.attempts >= tries and offer.wake >= wake
                if new and offer.session_id == session_id:
                    return offer

    async def until_all(self, session_ids: Iterable[str]) -> None:
        """Read until each was offered."""
        wanted = set(session_ids)
        while wanted - self.seen.keys():
            message = await self._reading.next()
            self.seen.update({offer.session_id: offer for offer in message.sessions})


class LeaseWatch:
    """One WatchLeases stream."""

    def __init__(self, reading: Reading[pb.WatchLeasesResponse]) -> None:
        self._reading = reading
        self.rows: dict[str, types_pb2.LeaseInfo] = {}
        """The newest row of each resource."""

    async def read(self) -> pb.WatchLeasesResponse:
        """The next message."""
        message = await self._reading.next()
        self.rows.update({row.resource: row for row in message.leases})
        return message

    async def snapshot(self) -> None:
        """Read the whole snapshot, which comes first."""
        while True:
            message = await self.read()
            must(message.snapshot, "the snapshot is not said to be one")
            if not message.more:
                return

    async def until(
        self, resource: str, done: Callable[[types_pb2.LeaseInfo], bool]
    ) -> types_pb2.LeaseInfo:
        """Read until a resource's row is so; the row."""
        while True:
            row = self.rows.get(resource)
            if row is not None and done(row):
                return row
            await self.read()


def is_live(row: types_pb2.LeaseInfo) -> bool:
    """Whether a lease has time left."""
    left: int = row.expires_in.ToNanoseconds()
    return row.HasField("expires_in") and left > 0
