"""Blobs by way of the brain that the daemon is linked to, whichever that is.

A link that breaks is waited for, and so is a store that is away, both within
one bound. Then reading goes on where it stopped, at the next brain; writing
begins again at the first byte, and the store skips what it has. What came has
the digest it was asked for, or it counts as not come.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import IO

from carpal.backoff import Backoff
from carpal.client import held, rpc_errors
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.status import Reason
from carpal.upload import Upload
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

LINK_LIMIT = 60.0
"""Seconds to wait for a link, and from the first failure to the last try at the same byte."""
PIECE_LIMIT = 30.0
"""Seconds for the next piece of a blob."""
_ANSWER_LIMIT = 120.0
"""Seconds for the answer to all of a blob, of which the store may have gigabytes to sync."""
_CUTS = 5
"""Ends before the end, with nothing between them: no store that is merely away does that."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
"""Seconds between tries."""
_PIECE = 192 * 1024


class _Patience:
    """How long one blob is tried for: anew whenever it came further than ever before."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._furthest = -1
        self._until = 0.0
        self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)

    def left(self) -> float:
        """Seconds left for a link to come."""
        return self._until - _now() if self._furthest >= 0 else self._limit

    async def again(self, offset: int, error: CarpalError) -> None:
        """Wait before the next try, after one that broke at `offset`; `error` when it was long."""
        if error.reason is Reason.DAEMON_NOT_LINKED:
            raise error  # that was waited for already
        if offset > self._furthest:
            self._furthest, self._until = offset, _now() + self._limit
            self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        if self.left() <= 0:
            raise error
        log.info("blob tried again", extra={"why": str(error), "offset": offset})
        await asyncio.sleep(min(self._backoff.next(), self.left()))


def _now() -> float:
    return asyncio.get_running_loop().time()


class Blobs:
    """What the daemon reads and writes."""

    def __init__(self, link_limit: float = LINK_LIMIT) -> None:
        """`link_limit` is in seconds."""
        self._link_limit = link_limit
        self.check: Callable[[], Callable[[IO[bytes]], None] | None] = lambda: None
        """Gives what reads all of a file and raises POLICY_FORBIDS when it may not leave; or None
        when any may."""
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
        found, size, cuts, patience = hashlib.sha256(), -1, 0, _Patience(self._link_limit)
        while size < 0 or request.offset < size:
            try:
                async for answer in self._pieces(request, patience):
                    if answer.HasField("info"):
                        size = answer.info.size
                    if answer.offset != request.offset:
                        raise refuse(Reason.DATA_CORRUPT, f"blob {digest.hex()} came with a gap")
                    found.update(answer.data)
                    request.offset += len(answer.data)
                    if answer.data:
                        cuts = 0
                        yield answer.data
                cuts += 1
                if cuts >= _CUTS:
                    raise refuse(Reason.DATA_CORRUPT, f"blob {digest.hex()} came cut")
            except Unreachable as error:
                await patience.again(request.offset, error)
        if found.digest() != digest:
            raise refuse(Reason.DATA_CORRUPT, f"blob {digest.hex()} came with another digest")

    async def write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        """Put a file's bytes as a blob; `info` says all of it. Raises what the brain does.

        One that breaks is sent again from its first byte. POLICY_FORBIDS for what may not leave.
        """
        if (check := self.check()) is not None:
            await asyncio.to_thread(check, file)
        patience = _Patience(self._link_limit)
        while True:
            file.seek(0)
            try:
                await self._write(session_id, file, info, patience)
            except Unreachable as error:
                await patience.again(file.tell(), error)
            else:
                return

    async def _write(
        self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo, patience: _Patience
    ) -> None:
        stub = await self._brain(patience.left())
        upload = Upload(stub.WriteBlob())
        try:
            with rpc_errors("the brain"):
                begin = pb.WriteBlobRequest(session_id=session_id, info=info)
                going = await self._send(upload, begin)
                while going and (data := await asyncio.to_thread(file.read, _PIECE)):
                    piece = pb.WriteBlobRequest(offset=file.tell() - len(data), data=data)
                    going = await self._send(upload, piece)
                answer = await self._answer(upload)
        finally:
            upload.close()
        if answer.offset != info.size:
            raise refuse(Reason.UNAVAILABLE, f"{answer.offset} of {info.size} bytes were taken")

    async def _answer(
        self, upload: Upload[pb.WriteBlobRequest, pb.WriteBlobResponse]
    ) -> pb.WriteBlobResponse:
        answering = asyncio.create_task(upload.answer())
        done, _ = await asyncio.wait({answering}, timeout=_ANSWER_LIMIT)
        if not done:
            upload.close()
            await asyncio.wait({answering})
            raise refuse(Reason.UNREACHABLE, f"the brain did not answer for {_ANSWER_LIMIT:g} s")
        return answering.result()

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

    async def _pieces(
        self, request: pb.ReadBlobRequest, patience: _Patience
    ) -> AsyncIterator[pb.ReadBlobResponse]:
        stub = await self._brain(patience.left())
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

    async def _brain(self, limit: float) -> "orchestrator_pb2_grpc.OrchestratorAsyncStub":
        try:
            async with asyncio.timeout(limit):
                while self._stub is None:
                    await self._linked.wait()
        except TimeoutError:
            raise refuse(
                Reason.DAEMON_NOT_LINKED, f"no brain was linked for {self._link_limit:g} s"
            ) from None
        return self._stub
