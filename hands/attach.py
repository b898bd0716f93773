"""The daemon's end of an Attach stream: one call's large output and its result, until it is read.

The brain says first from which offset it wants the output, and then what it
has read. When the stream breaks and the link does not, another takes its
place; when the link ends, so does this, and the call is asked for on the next.
"""

import asyncio
import logging
from collections.abc import Callable

import grpc

from carpal.backoff import Backoff
from carpal.client import from_rpc, held
from carpal.fault_points import frame_points
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from hands.life.running import Running

log = logging.getLogger(__name__)

CHUNK = 192 * 1024
"""Bytes of output in one message here: with its envelope a frame of at most 256 KiB."""
_FINAL = {
    Reason.CALL_NOT_FOUND, Reason.LINK_VIOLATION, Reason.ROLE_NOT_ALLOWED, Reason.NOT_BUILT,
}  # fmt: skip
"""Refusals after which no other stream will do; the brain asks again, or nobody reads."""

AttachStream = grpc.aio.StreamStreamCall[pb.AttachRequest, pb.AttachResponse]


async def carry(
    open_stream: Callable[[], AttachStream],
    opening: pb.AttachOpen,
    running: Running,
    read: Callable[[int], None],
) -> None:
    """Give the brain a call's output and result, over one stream or several, one at a time.

    `read` is told the offset below which the brain has it. Returns when the
    brain has the result, wants no more, or refuses. Cancelled with its link.
    """
    backoff = Backoff(0.05, 1.0)
    while True:
        with held(open_stream()) as stream:
            error = await _once(stream, opening, running, read, backoff.works)
        if error is None:
            return
        refusal = from_rpc(error, "the brain")
        if refusal.reason in _FINAL:
            log.info("output not wanted", extra={"call": opening.call_id, "reason": refusal.reason})
            return
        log.info("output stream broke", extra={"call": opening.call_id, "why": str(refusal)})
        await asyncio.sleep(backoff.next())


async def _once(
    stream: AttachStream,
    opening: pb.AttachOpen,
    running: Running,
    read: Callable[[int], None],
    works: Callable[[], None],
) -> grpc.aio.AioRpcError | None:
    """One stream, to its end: what it broke with. `works` is told of all that the brain says."""
    wanted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    sending = asyncio.create_task(_send(stream, opening, running, wanted))
    reading = asyncio.create_task(_read(stream, running, read, works, wanted))
    try:
        await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            sending.result()  # raises: the brain would wait for ever for what is not sent
            await asyncio.wait({reading})
    finally:
        sending.cancel()
        reading.cancel()
        await asyncio.wait({sending, reading})
    if not sending.cancelled():
        sending.result()
    try:
        reading.result()
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def _read(
    stream: AttachStream,
    running: Running,
    read: Callable[[int], None],
    works: Callable[[], None],
    wanted: "asyncio.Future[int]",
) -> None:
    while isinstance(said := await stream.read(), pb.AttachResponse):
        works()
        read(said.acknowledged_offset)
        running.read(said.acknowledged_offset)
        if not wanted.done():
            wanted.set_result(said.acknowledged_offset)


async def _send(
    stream: AttachStream, opening: pb.AttachOpen, running: Running, wanted: "asyncio.Future[int]"
) -> None:
    try:
        await _write(stream, pb.AttachRequest(open=opening))
        async for step in running.watch(await wanted, CHUNK):
            await _write(stream, pb.AttachRequest(execute=step))
        await stream.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return  # the stream is over; the reader learns why


async def _write(stream: AttachStream, request: pb.AttachRequest) -> None:
    frame_points("daemon", (request,), "before_written")
    await stream.write(request)
    frame_points("daemon", (request,), "written")
