"""Blobs by way of the brain that the daemon is linked to, whichever that is.

A link that breaks is waited for, within bounds, and reading goes on where it
stopped, at the next brain. What came has the digest it was asked for, or it
counts as not come.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from typing import IO

from carpal.client import held, rpc_errors
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.status import Reason
from carpal.upload import Upload
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

LINK_LIMIT = 60.0
"""Seconds to wait for a link."""
PIECE_LIMIT = 30.0
"""Seconds for the next piece of a blob."""
_TRIES = 5
"""Links in a row on which nothing came."""
_PIECE = 192 * 1024


class Blobs:
    """What the daemon reads and writes."""

    def __init__(self, link_limit: float = LINK_LIMIT) -> None:
        """`link_limit` is in seconds."""
        self._link_limit = link_limit
        self._stub: orchestrator_pb2_grpc.OrchestratorAsyncStub | None = None
        self._linked = asyncio.Event()

    def linked(self, stub: "orchestrator_pb2_grpc.OrchestratorAsyncStub") -> None:
        """There is a link; these are its brain's methods."""
        self._stub = stub
        self._linked.set()

    def left(self, stub: "orchestrator_pb2_grpc.OrchestratorAsyncStub") -> None:
        """That link is over, unless a newer one took its place before."""
        if self._stub is stub:
            self._stub = None
            self._linked.clear()

    async def read(self, session_id: str, digest: bytes) -> AsyncIterator[bytes]:
        """A blob, piece by piece. Raises BLOB_NOT_FOUND, DATA_CORRUPT, DAEMON_NOT_LINKED."""
        request = pb.ReadBlobRequest(session_id=session_id, digest=digest)
        found, size, failures = hashlib.sha256(), -1, 0
        while size < 0 or request.offset < size:
            try:
                async for answer in self._pieces(request):
                    if answer.HasField("info"):
                        size = answer.info.size
                    if answer.offset != request.offset:
                        raise refuse(Reason.DATA_CORRUPT, f"blob {digest.hex()} came with a gap")
                    found.update(answer.data)
                    request.offset += len(answer.data)
                    failures = 0
                    if answer.data:
                        yield answer.data
                failures += 1  # an end before the end: asked again, and not for ever
                if failures >= _TRIES:
                    raise refuse(Reason.DATA_CORRUPT, f"blob {digest.hex()} came cut")
            except Unreachable as error:
                failures += 1
                if failures >= _TRIES:
                    raise
                log.info("blob asked for again", extra={"why": str(error)})
        if found.digest() != digest:
            raise refuse(Reason.DATA_CORRUPT, f"blob {digest.hex()} came with another digest")

    async def write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        """Put a file's bytes as a blob; `info` says all of it. Raises what the brain does."""
        failures = 0
        while True:
            try:
                await self._write(session_id, file, info)
            except Unreachable as error:
                failures += 1
                if failures >= _TRIES:
                    raise
                log.info("blob sent again", extra={"why": str(error)})
            else:
                return

    async def _write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        stub = await self._brain()
        upload = Upload(stub.WriteBlob())
        try:
            with rpc_errors("the brain"):
                begin = pb.WriteBlobRequest(session_id=session_id, info=info)
                going = await self._send(upload, begin)
                file.seek(0)
                while going and (data := await asyncio.to_thread(file.read, _PIECE)):
                    piece = pb.WriteBlobRequest(offset=file.tell() - len(data), data=data)
                    going = await self._send(upload, piece)
                answer = await upload.answer()
        finally:
            upload.close()
        if answer.offset != info.size:
            raise refuse(Reason.UNAVAILABLE, f"{answer.offset} of {info.size} bytes were taken")

    async def _send(
        self, upload: Upload[pb.WriteBlobRequest, pb.WriteBlobResponse], piece: pb.WriteBlobRequest
    ) -> bool:
        sending = asyncio.create_task(upload.send(piece))
        # A write that is cancelled ends its stream, which is what is wanted here.
        done, _ = await asyncio.wait({sending}, timeout=PIECE_LIMIT)
        if not done:
            upload.close()
            await asyncio.wait({sending})
            raise refuse(Reason.UNREACHABLE, f"the brain took nothing for {PIECE_LIMIT:g} s")
        return sending.result()

    async def _pieces(self, request: pb.ReadBlobRequest) -> AsyncIterator[pb.ReadBlobResponse]:
        stub = await self._brain()
        with rpc_errors("the brain"), held(stub.ReadBlob(request)) as stream:
            while True:
                reading = asyncio.create_task(stream.read())
                done, _ = await asyncio.wait({reading}, timeout=PIECE_LIMIT)
                if not done:
                    stream.cancel()
                    await asyncio.wait({reading})
                    raise refuse(
                        Reason.UNREACHABLE, f"the brain sent nothing for {PIECE_LIMIT:g} s"
                    )
                answer = reading.result()
                if not isinstance(answer, pb.ReadBlobResponse):
                    return
                yield answer

    async def _brain(self) -> "orchestrator_pb2_grpc.OrchestratorAsyncStub":
        try:
            async with asyncio.timeout(self._link_limit):
                while self._stub is None:
                    await self._linked.wait()
        except TimeoutError:
            raise _no_link(self._link_limit) from None
        return self._stub


def _no_link(limit: float) -> CarpalError:
    return refuse(Reason.DAEMON_NOT_LINKED, f"no brain was linked for {limit:g} s")
