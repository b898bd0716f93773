"""One answer of a daemon as it is read: from the control stream, then from its Attach streams.

An Attach stream is read one message ahead of whoever reads the answer, so a
reader that stalls stalls that stream, by HTTP/2's own flow control, and
nothing else. When one breaks, another takes its place where reading stopped.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from brain.daemons.answer_queue import AnswerQueue
from carpal.errors import CarpalError, from_status, refuse
from carpal.fault_points import frame_points
from carpal.link_output import Reading
from carpal.server import Context
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

OPENING_LIMIT = 5.0
"""Seconds in which an Attach stream must say what it carries."""
STREAM_LIMIT = 30.0
"""Seconds an answer that moved may be without a stream before it is asked for again."""
_ACKNOWLEDGE = 256 * 1024
"""Bytes of output between acknowledgements."""

Requests = AsyncIterator[pb.AttachRequest]
Read = Callable[[int], None]


class Answer:
    """What a daemon answers to one request, for the one who asked."""

    def __init__(self, request: pb.Request, stream_limit: float = STREAM_LIMIT) -> None:
        """`stream_limit` is in seconds."""
        self.complete = False
        """Its last message came, or what ended it."""
        self._number = request.request_id
        self._reading = Reading(request.execute.output_offset)
        self._came = AnswerQueue()
        self._moved = asyncio.Event()
        self._left = asyncio.Event()
        self._newer: asyncio.Event | None = None
        """Set once a stream newer than the one that serves has come."""
        self._stream_limit = stream_limit
        self._without: asyncio.TimerHandle | None = None

    def put(self, reply: pb.Reply | CarpalError) -> None:
        """A reply came on the control stream, or the link ended."""
        self._came.put(reply)

    async def replies(self) -> AsyncGenerator[pb.Reply, None]:
        """All of it, in order, each byte of output once. Raises what ended it."""
        try:
            while not self.complete:
                reply, taken, _ = await self._came.get()
                if isinstance(reply, CarpalError):
                    self.complete = not self._came.cut
                    raise reply
                if reply.attached:
                    self._move()
                    continue
                self.complete = reply.last
                if reply.HasField("status"):
                    raise from_status(reply.status)
                if self._is_new(reply):
                    yield reply
                if taken is not None:
                    taken.set()
        finally:
            self._left.set()
            self._with_stream()

    async def carry(self, requests: Requests, context: Context, read: Read) -> None:
        """Serve one Attach stream of it, until the result is read, nobody reads, or a newer comes.

        `read` is told how far the output was read. CALL_NOT_FOUND when the
        answer does not move here after all.
        """
        if self._newer is not None:
            self._newer.set()
        newer = self._newer = asyncio.Event()
        self._with_stream()
        serving = asyncio.create_task(self._serve(requests, context, read))
        ends = {asyncio.create_task(each.wait()) for each in (newer, self._left)}
        try:
            await asyncio.wait({serving, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._newer is newer:
                self._newer = None
                self._without_stream()
            for task in (serving, *ends):
                task.cancel()
            await asyncio.wait({serving, *ends})
        if not serving.cancelled():
            serving.result()

    async def _serve(self, requests: Requests, context: Context, read: Read) -> None:
        try:
            # What came on the control stream is read first: it tells from where to go on.
            async with asyncio.timeout(self._stream_limit):
                await self._moved.wait()
        except TimeoutError:
            raise refuse(Reason.CALL_NOT_FOUND, "the answer did not move to this stream") from None
        said = self._reading.offset
        read(said)
        await _tell(context, said)
        async for message in requests:
            kind = message.WhichOneof("message")
            if kind == "open":
                raise refuse(Reason.LINK_VIOLATION, "an Attach stream was opened twice")
            if kind != "execute":
                continue  # an arm of a newer daemon
            await self._give(message.execute)
            read(self._reading.offset)
            if self.complete:
                return
            if self._reading.offset - said >= _ACKNOWLEDGE:
                said = self._reading.offset
                await _tell(context, said)

    async def _give(self, response: hand_pb2.ExecuteResponse) -> None:
        """Hand a message over and wait until it was read."""
        last = response.HasField("result")
        reply = pb.Reply(request_id=self._number, last=last, execute=response)
        await self._came.give(reply).wait()

    def _is_new(self, reply: pb.Reply) -> bool:
        """Whether a reply says anything that was not read; what was is cut from it."""
        if reply.execute.WhichOneof("step") != "output":
            return True
        chunk = self._reading.take(reply.execute.output)
        if chunk is None:
            return False
        reply.execute.output.CopyFrom(chunk)
        return True

    def _move(self) -> None:
        self._moved.set()
        self._without_stream()

    def _without_stream(self) -> None:
        if self._moved.is_set() and not self._left.is_set() and self._newer is None:
            self._with_stream()
            why = refuse(Reason.DAEMON_NOT_LINKED, "the call's output stream did not come")
            loop = asyncio.get_running_loop()
            self._without = loop.call_later(self._stream_limit, self.put, why)

    def _with_stream(self) -> None:
        if self._without is not None:
            self._without.cancel()
            self._without = None


async def _tell(context: Context, offset: int) -> None:
    """From where to send, first; then what was read."""
    response = pb.AttachResponse(acknowledged_offset=offset)
    frame_points("brain", (response,), "before_written")
    await context.write(response)
    frame_points("brain", (response,), "written")


async def opening(requests: Requests, limit: float = OPENING_LIMIT) -> pb.AttachOpen:
    """What an Attach stream says first. LINK_SILENT or LINK_VIOLATION when it does not."""
    try:
        # A read that is cancelled ends its stream, and so does what is raised here.
        async with asyncio.timeout(limit):
            async for message in requests:
                if message.HasField("open"):
                    return message.open
                break
    except TimeoutError:
        raise refuse(Reason.LINK_SILENT, f"nothing came for {limit:g} s") from None
    raise refuse(Reason.LINK_VIOLATION, "an Attach stream's first message must be open")
