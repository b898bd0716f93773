"""A tunnel as a brain carries it: where the person's stream and the daemon's Attach stream meet.

Each direction passes one message at a time, and the next is read once it was
taken: so flow control reaches from one end to the other, and nothing waits here.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from brain.daemons.attach import STREAM_LIMIT, Requests
from carpal.errors import CarpalError, from_status, refuse
from carpal.layers import Layer, layer_of
from carpal.server import Context
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

M = TypeVar("M")
FAILED = "it failed, and why was told to the person alone"
"""Of a tunnel: a log says nothing of what was typed or seen, and a hand's words may be that."""


class Passage(Generic[M]):
    """Messages one way, one at a time."""

    def __init__(self) -> None:
        self._message: M | None = None
        self._error: CarpalError | None = None
        self.over = False
        """Nothing more is put in."""
        self._there, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    async def put(self, message: M) -> None:
        """Give one; waits until there is room. After the end it is dropped."""
        await self._room.wait()
        if not self.over:
            self._room.clear()
            self._message = message
            self._there.set()

    async def get(self) -> M | None:
        """The next; None at the end. Raises what the passage ended with."""
        await self._there.wait()
        message, self._message = self._message, None
        if message is None and self._error is not None:
            raise self._error
        if not self.over:
            self._there.clear()
        self._room.set()
        return message

    def end(self, error: CarpalError | None = None) -> None:
        """No more comes; the first end counts."""
        if not self.over:
            self.over, self._error = True, error
            self._there.set()
            self._room.set()


class Meeting:
    """One tunnel's answer, for `DaemonLink`; a stream of it for whoever is at its other end."""

    def __init__(self, tunnel_id: str) -> None:
        self.complete = False
        """The daemon says no more of it on the control stream."""
        self.back: Passage[hand_pb2.TunnelResponse] = Passage()
        """What the hand gives."""
        self.out: Passage[hand_pb2.TunnelRequest] = Passage()
        """What the person sends."""
        self.because = "the person's command ended"
        """Why it is over, once it is."""
        self.layer: Layer | None = None
        """The part that failed, if one did."""
        self._tunnel_id = tunnel_id
        self._came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = asyncio.Event()

    def put(self, reply: pb.Reply | CarpalError) -> None:
        """A reply came on the control stream, or the link ended."""
        if isinstance(reply, pb.Reply):
            self.complete |= reply.last and not reply.attached
            if not reply.HasField("status"):
                return  # it moves
            reply = from_status(reply.status)
        self._fail(reply)

    async def arrived(self) -> None:
        """Wait for the daemon's stream. Raises its refusal, and DAEMON_NOT_LINKED."""
        try:
            async with asyncio.timeout(STREAM_LIMIT):
                await asyncio.shield(self._came)
        except TimeoutError:
            why = "the tunnel's stream did not come"
            raise refuse(Reason.DAEMON_NOT_LINKED, why) from None

    def leave(self) -> None:
        """Nobody is at the other end any more."""
        self._left.set()
        self.out.end()
        self.back.end()
        self._came.cancel()

    async def carry(
        self, requests: Requests, context: Context, _read: Callable[[int], None]
    ) -> None:
        """Serve the daemon's stream, until it ends or the person left."""
        if self._came.done():
            raise refuse(
                Reason.CALL_NOT_FOUND, f"tunnel {self._tunnel_id!r} has had its one stream"
            )
        self._came.set_result(None)
        reading = asyncio.create_task(self._read(requests))
        writing = asyncio.create_task(self._write(context))
        leaving = asyncio.create_task(self._left.wait())
        tasks = {reading, writing, leaving}
        try:
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._fail(refuse(Reason.DAEMON_NOT_LINKED, "the tunnel's stream ended"))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not writing.cancelled():
            writing.exception()  # the stream broke, as who reads it is told
        if not reading.cancelled():
            reading.result()

    async def _read(self, requests: Requests) -> None:
        async for message in requests:
            kind = message.WhichOneof("message")
            if kind == "open":
                raise refuse(Reason.LINK_VIOLATION, "an Attach stream was opened twice")
            if kind != "tunnel":
                continue  # an arm of a newer daemon
            await self.back.put(message.tunnel)
            if message.tunnel.HasField("end"):
                self.complete = True
                self.because = FAILED if message.tunnel.end.problem else "they left"
                self.layer = Layer.HAND if message.tunnel.end.problem else None
                self.back.end()
                return

    async def _write(self, context: Context) -> None:
        while (said := await self.out.get()) is not None:
            await context.write(pb.AttachResponse(tunnel=said))

    def _fail(self, error: CarpalError) -> None:
        if not self.back.over:
            self.because, self.layer = error.message, layer_of(error.reason, Layer.DAEMON)
            self.back.end(error)
        if not self._came.done():
            self._came.set_exception(error)
            self._came.exception()  # it may have no waiter left
