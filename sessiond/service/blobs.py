"""The Session service's blobs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial

from carpal.errors import CarpalError, invalid
from carpal.server import Context, caller
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionServicer
from sessiond.parts import Parts
from sessiond.rules import blobs
from sessiond.rules.sessions import own_workspace
from sessiond.store import Reader
from sessiond.store_blobs import BlobRow
from sessiond.upload import Upload

_log = logging.getLogger(__name__)


class BlobService(SessionServicer):
    """Bytes by their digest."""

    _parts: Parts

    async def PutBlob(
        self, request_iterator: AsyncIterator[pb.PutBlobRequest], context: Context
    ) -> pb.PutBlobResponse:
        """See session.proto."""
        messages = aiter(request_iterator)
        first = await anext(messages, None)
        if first is None or not first.HasField("info"):
            raise invalid("info", "must be in the first message")
        parts = self._parts
        wanted = blobs.wanted(caller(context), first.workspace, first.info)
        upload = Upload(parts.writer, parts.readers, wanted, parts.blob_cap)
        await upload.begin()
        try:
            if not upload.done:
                await upload.take(first.offset, first.data)
            while not upload.done and (message := await anext(messages, None)) is not None:
                if message.HasField("info"):
                    raise invalid("info", "belongs in the first message alone")
                await upload.take(message.offset, message.data)
        except asyncio.CancelledError:
            # The caller is gone. It need not send again what came.
            try:
                await upload.keep()
            except CarpalError as error:
                _log.info("end of an upload not kept", extra={"problem": error.message})
            raise
        try:
            row = await upload.finish()
        except CarpalError as error:
            if error.reason in {Reason.DIGEST_MISMATCH, Reason.DATA_CORRUPT}:
                parts.sweeper.wake()
            raise
        return pb.PutBlobResponse(info=_info(row), offset=row.held)

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Context
    ) -> AsyncIterator[pb.GetBlobResponse]:
        """See session.proto. Each piece is read when the one before it was taken."""
        workspace = own_workspace(caller(context), request.workspace)
        digest = blobs.check_digest(request.digest, "digest")
        readers = self._parts.readers
        row = await readers.run(lambda reader: blobs.find(reader, workspace, digest))
        if request.offset > row.size:
            raise invalid("offset", f"the blob has {row.size} bytes")
        offset = request.offset
        info: types_pb2.BlobInfo | None = _info(row)
        while info is not None or offset < row.size:
            data = b""
            if offset < row.size:
                data = await readers.run(partial(_piece, row=row, offset=offset))
            yield pb.GetBlobResponse(info=info, offset=offset, data=data)
            info = None
            offset += len(data)


def _piece(reader: Reader, row: BlobRow, offset: int) -> bytes:
    return reader.blobs.piece(row, offset)


def _info(row: BlobRow) -> types_pb2.BlobInfo:
    return types_pb2.BlobInfo(digest=row.digest, size=row.size, media_type=row.media_type)
