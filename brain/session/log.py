"""The brain's end of the session log: one append stream, one tail a session.

Appends of all sessions share one stream, coalesced into frames. What was not
acknowledged when the stream breaks is sent again on the next one; event ids
make that safe.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from brain.session.entries import Entry, New
from brain.text import clean
from carpal.backoff import Backoff
from carpal.client import rpc_errors
from carpal.coalesce import Outbox
from carpal.errors import CarpalError, Unreachable, from_status, refuse
from carpal.ids import new_id
from carpal.json_in import plain_object, read_object
from carpal.status import Reason
from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

EVENT_BYTES = 1024 * 1024
"""Of one event's data."""
GROUP_BYTES = 4 * 1024 * 1024


_EXPIRED = Reason.CERTIFICATE_EXPIRED
_MESSAGES = ("user.message", "system.message")
_REDACTED = {"content": [{"type": "text", "text": "[redacted]"}]}


def new_event(event: New) -> types_pb2.NewEvent:
    """The wire form, with an id."""
    return types_pb2.NewEvent(
        id=event.id or new_id("sevt"),
        type=event.type,
        data=json.dumps(event.data, ensure_ascii=False, separators=(",", ":")).encode(),
    )


@dataclass
class _Waiting:
    group: types_pb2.AppendGroup
    done: "asyncio.Future[int]"


@dataclass(frozen=True)
class Told:
    """An event as sessiond told it: what it says, and what tells it from any other."""

    entry: Entry
    hash: bytes
    """Chained over all before it."""
    size: int
    """Bytes of its data."""


class Appender:
    """Appends groups and waits until they are durable."""

    def __init__(self, stub: "session_pb2_grpc.SessionAsyncStub") -> None:
        self._stub = stub
        self._waiting: dict[int, _Waiting] = {}
        self._outbox: Outbox[types_pb2.AppendGroup] | None = None
        self._sequence = 0

    async def append(
        self, session_id: str, events: Sequence[New], epoch: int, *, wake: bool = False
    ) -> int:
        """Append one group, all or nothing; the position of its last event.

        Waits through restarts of sessiond and full disks; cancel it to stop waiting. Raises
        the refusal, STALE_EPOCH above all. What sessiond would refuse for its
        size is refused here: too large a frame would end the stream of all.
        """
        group = types_pb2.AppendGroup(
            session_id=session_id,
            events=[new_event(event) for event in events],
            epoch=epoch,
            wake=wake,
        )
        check_sizes(group)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._send(_Waiting(group, done))
        return await done + len(events) - 1

    async def run(self) -> None:
        """Keep a stream to sessiond; runs until cancelled."""
        backoff = Backoff(0.05, 1.0)
        while True:
            try:
                with rpc_errors("sessiond"):
                    await self._one_stream(backoff)
            except CarpalError as error:
                log.warning("append stream ended", extra={"error": str(error)})
            self._outbox = None
            await asyncio.sleep(backoff.next())

    def _send(self, waiting: _Waiting) -> None:
        self._sequence += 1
        waiting.group.sequence = self._sequence
        self._waiting[self._sequence] = waiting
        if self._outbox is not None:
            self._outbox.put(waiting.group)

    async def _one_stream(self, backoff: Backoff) -> None:
        stream = self._stub.Append()
        again = [w for w in self._waiting.values() if not w.done.done()]
        self._waiting, self._sequence = {}, 0
        self._outbox = Outbox()
        for waiting in again:
            self._send(waiting)
        writer = asyncio.create_task(_write(stream, self._outbox))
        try:
            async for answer in stream:
                for ack in answer.acks:
                    self._acknowledge(ack)
                backoff.works()
        finally:
            stream.cancel()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _acknowledge(self, ack: types_pb2.AppendAck) -> None:
        refused = from_status(ack.status) if ack.HasField("status") else None
        if refused is not None and refused.reason is Reason.STORE_FULL:
            raise refused  # it goes on waiting, and is sent again on the next stream
        waiting = self._waiting.pop(ack.sequence, None)
        if waiting is None or waiting.done.done():
            return  # its waiter was cancelled
        if refused is not None:
            waiting.done.set_exception(refused)
        else:
            waiting.done.set_result(ack.position)


def check_sizes(group: types_pb2.AppendGroup) -> None:
    """EVENT_TOO_LARGE or GROUP_TOO_LARGE, by the contract's limits."""
    for event in group.events:
        if len(event.data) > EVENT_BYTES:
            raise refuse(Reason.EVENT_TOO_LARGE, f"a {event.type} event of {len(event.data)} bytes")
    if group.ByteSize() > GROUP_BYTES:
        raise refuse(Reason.GROUP_TOO_LARGE, f"a group of {group.ByteSize()} bytes")


async def _write(
    stream: "grpc.aio.StreamStreamCall[session_pb2.AppendRequest, session_pb2.AppendResponse]",
    outbox: Outbox[types_pb2.AppendGroup],
) -> None:
    async for groups in outbox.frames():
        await stream.write(session_pb2.AppendRequest(groups=groups))


async def tail(
    stub: "session_pb2_grpc.SessionAsyncStub", session_id: str, after: int = 0
) -> AsyncIterator[tuple[list[Told], bool]]:
    """Events above `after`, then live ones, for ever; True once all old ones came.

    Reconnects and resumes from the last position seen.
    """
    backoff = Backoff(0.05, 1.0)
    while True:
        cursor = types_pb2.TailCursor(session_id=session_id, after=after)
        stream = stub.TailEvents(session_pb2.TailEventsRequest(cursors=[cursor]))
        try:
            with rpc_errors("sessiond"):
                async for answer in stream:
                    backoff.works()
                    if answer.events:
                        after = answer.events[-1].position
                    yield [told(event) for event in answer.events], answer.live
        except CarpalError as error:
            # Its certificate has a successor by now, which the next stream goes by.
            if not isinstance(error, Unreachable) and error.reason is not _EXPIRED:
                raise
        finally:
            stream.cancel()
        await asyncio.sleep(backoff.next())


def told(event: types_pb2.Event) -> Told:
    """An event with its data parsed, and its place in the chain."""
    return Told(entry_of(event), event.hash, len(event.data))


def entry_of(event: types_pb2.Event) -> Entry:
    """An event with its data parsed.

    Data that is not a JSON object, or is nested too deeply to be walked, reads as empty:
    sessiond never parses it, so anyone may have put anything there. So does what was redacted,
    but that a message keeps its place in the conversation.
    """
    redacted = event.HasField("redaction")
    if redacted and event.type in _MESSAGES:
        data = _REDACTED
    else:
        plain = plain_object(event.data)
        data = _odd(event) if plain is None else plain
    return Entry(
        position=event.position,
        id=event.id,
        type=event.type,
        data=data,
        must_understand=event.must_understand,
        time=(event.time.seconds * 1000 + event.time.nanos // 1_000_000) / 1000,
        redacted=redacted,
        source=event.source,
    )


def _odd(event: types_pb2.Event) -> dict[str, Any]:
    """What is not plain, made fit to be sent on."""
    try:
        cleaned: dict[str, Any] = clean(read_object(event.data, event.type))
    except CarpalError:
        return {}
    return cleaned
