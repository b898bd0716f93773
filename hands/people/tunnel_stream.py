"""A tunnel's Attach stream at the daemon: what the person sends, and what the hand gives them.

One task a direction, and neither reads more than the other end takes: HTTP/2's
own flow control of this stream reaches from the person to the process in the
hand and back, so one that stalls delays nothing else. When the stream ends, for
whatever reason, the tunnel does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc

from carpal.client import from_rpc, held
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.attach import AttachStream
from hands.contract import EnterFailed, HandLost, Inside, Left, MountFailed
from hands.owner.gate import Gate
from hands.owner.redact import Redactor, Stream
from hands.people.tunnels import Tunnel

log = logging.getLogger(__name__)

CHUNK = 192 * 1024
"""Bytes in one message: with its envelope a frame of at most 256 KiB."""
_BEGIN_LIMIT = 30.0
"""Seconds for the brain to write in the log that the person is there."""
_END_LIMIT = 10.0
"""Seconds for the brain to take the last of it."""
NOTHING = Redactor(())
FAILED = "it failed, and why was told to the person alone"
"""Why a tunnel ended, where a hand words that."""


async def carry(
    open_stream: Callable[[], AttachStream], opening: pb.AttachOpen, tunnel: Tunnel, gate: Gate
) -> None:
    """Carry one tunnel to its end, and say in it why it ended. Raises nothing of either end.

    What leaves the machine leaves it by `gate`.
    """
    with held(open_stream()) as stream:
        try:
            await stream.write(pb.AttachRequest(open=opening))
            async with _reading(stream) as person:
                if not await person.begins():
                    tunnel.because = "the brain did not say that the log has it"
                    return
                opened = hand_pb2.TunnelOpened(running_call_ids=tunnel.running)
                await _write(stream, hand_pb2.TunnelResponse(opened=opened))
                left = await _serve(stream, person, tunnel, gate)
                tunnel.because = gate.outward.text(_because(left))
                end = hand_pb2.TunnelEnd(
                    exit_code=left.exit_code,
                    problem=gate.outward.text(left.problem),
                    said=gate.outward.text(left.said),
                )
                await _write(stream, hand_pb2.TunnelResponse(end=end))
                await stream.done_writing()
                await person.is_done()
        except grpc.aio.AioRpcError as error:
            tunnel.because = str(from_rpc(error, "the brain"))
        except asyncio.InvalidStateError:
            tunnel.because = "its stream ended"


class _Person:
    """What the person sends, one message ahead: a read that is given up would end the stream."""

    def __init__(self, stream: AttachStream) -> None:
        self._stream = stream
        self._next: hand_pb2.TunnelRequest | None = None
        self._there, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self.gone = asyncio.Event()
        """Their stream ended: nothing is worth waiting for."""

    async def read(self) -> None:
        """Until their stream ends."""
        try:
            while isinstance(said := await self._stream.read(), pb.AttachResponse):
                await self._room.wait()
                self._room.clear()
                self._next = said.tunnel
                self._there.set()
        except grpc.aio.AioRpcError as error:
            log.info("a tunnel's stream broke", extra={"why": str(from_rpc(error, "the brain"))})
        finally:
            self.gone.set()
            self._there.set()

    async def next(self) -> hand_pb2.TunnelRequest | None:
        """One message; None at the end, again and again."""
        await self._there.wait()
        said, self._next = self._next, None
        if not self.gone.is_set():
            self._there.clear()
        self._room.set()
        return said

    async def begins(self) -> bool:
        """Whether the brain lets it begin."""
        try:
            async with asyncio.timeout(_BEGIN_LIMIT):
                said = await self.next()
        except TimeoutError:
            return False
        return said is not None and said.HasField("open")

    async def is_done(self) -> None:
        """Let the brain take the last of it."""
        try:
            async with asyncio.timeout(_END_LIMIT):
                while await self.next() is not None:
                    pass
        except TimeoutError:
            log.info("a tunnel's end was not taken")


@asynccontextmanager
async def _reading(stream: AttachStream) -> AsyncIterator[_Person]:
    person = _Person(stream)
    reading = asyncio.create_task(person.read())
    try:
        yield person
    finally:
        reading.cancel()
        await asyncio.wait({reading})


def _because(left: Left) -> str:
    """For logs, which say nothing of what was typed or seen: a hand's words may be that."""
    if not left.problem:
        return "they left"
    return FAILED if left.theirs else left.problem


async def _serve(stream: AttachStream, person: _Person, tunnel: Tunnel, gate: Gate) -> Left:
    """Until either end is done. Once it is told that it is over, nobody is in the hand."""
    if not tunnel.connects:
        return await _stand(person, tunnel)
    try:
        async with tunnel.enter() as inside:
            return await _pump(stream, person, tunnel, inside, gate)
    except HandLost as error:
        return Left(problem=str(error), theirs=False)
    except (EnterFailed, MountFailed, OSError) as error:
        return Left(problem=str(error))


async def _stand(person: _Person, tunnel: Tunnel) -> Left:
    """What only stands for its connections: until the person ends it, or the owner does."""

    async def ended() -> None:
        while (said := await person.next()) is not None and not said.HasField("end"):
            pass

    tasks = {asyncio.create_task(ended()), asyncio.create_task(tunnel.forbidden.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return _forbidden(tunnel) or Left()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _forbidden(tunnel: Tunnel) -> Left | None:
    return Left(problem=tunnel.because, theirs=False) if tunnel.forbidden.is_set() else None


async def _pump(
    stream: AttachStream, person: _Person, tunnel: Tunnel, inside: Inside, gate: Gate
) -> Left:
    taking = asyncio.create_task(_take(stream, tunnel, inside, gate))
    giving = asyncio.create_task(_give(person, tunnel, inside))
    going = asyncio.create_task(person.gone.wait())
    ending = asyncio.create_task(tunnel.forbidden.wait())
    tasks = {taking, giving, going, ending}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if forbidden := _forbidden(tunnel):
            return forbidden
        if taking.done():
            return taking.result()
        if giving.done():
            giving.result()
        return Left(problem="the person's stream ended", theirs=False)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _take(stream: AttachStream, tunnel: Tunnel, inside: Inside, gate: Gate) -> Left:
    """What the hand gives, to its end; the owner's patterns, as they are now, are masked in it.

    In a picture there is nothing to find, and its bytes are no text.
    """
    masking = {False: Stream(gate.outward.redactor), True: Stream(gate.outward.redactor)}

    def redactor(*, error: bool) -> Redactor:
        return NOTHING if tunnel.shows and not error else gate.outward.redactor

    async def write(data: bytes, *, error: bool) -> None:
        tunnel.out_bytes += len(data)
        response = hand_pb2.TunnelResponse()
        if error:
            response.error = data
        else:
            response.data = data
        await _write(stream, response)

    while not isinstance(came := await inside.take(CHUNK), Left):
        masked = masking[came.error]
        masked.redactor = redactor(error=came.error)
        data = masked.feed(came.data) if came.data else masked.end()
        if not data and came.data:
            continue  # it may become a match
        if data and not came.data:
            await write(data, error=came.error)
            data = b""
        await write(data, error=came.error)
    for error, masked in masking.items():
        masked.redactor = redactor(error=error)
        if rest := masked.end():
            await write(rest, error=error)
    return came


async def _give(person: _Person, tunnel: Tunnel, inside: Inside) -> None:
    """What the person sends, until their stream ends."""
    while (said := await person.next()) is not None:
        match said.WhichOneof("message"):
            case "data":
                tunnel.in_bytes += len(said.data)
                await inside.give(said.data)
            case "resize":
                await inside.resize(said.resize.rows, said.resize.columns)
            case "end":
                await inside.end()


async def _write(stream: AttachStream, response: hand_pb2.TunnelResponse) -> None:
    await stream.write(pb.AttachRequest(tunnel=response))
