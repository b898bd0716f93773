"""What a drive asks of sessiond beside appending and following: slices of its log, and blobs."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from brain.entries import Entry
from brain.log import entry_of
from carpal.client import rpc_errors
from carpal.upload import Upload
from carpal.v1 import session_pb2, types_pb2

if TYPE_CHECKING:
    from carpal.v1 import session_pb2_grpc

_LIMIT = 10.0
"""Seconds sessiond has for a slice."""
_PIECE = 256 * 1024
"""Bytes of a blob in one message, as the contract has it."""


async def read_events(
    stub: "session_pb2_grpc.SessionAsyncStub",
    session_id: str,
    *,
    after: int = 0,
    before: int = 0,
    limit: int = 100,
    types: Sequence[str] = (),
    newest_first: bool = False,
) -> list[Entry]:
    """At most `limit` events above `after`, or below `before`, and 2 MiB of them.

    `before` 0 means up to the head. Raises CarpalError.
    """
    request = session_pb2.GetEventsRequest(session_id=session_id, types=types, limit=limit)
    if newest_first:
        request.order = types_pb2.EVENT_ORDER_NEWEST_FIRST
    if before:
        request.before = before
    elif after or not newest_first:
        request.after = after
    with rpc_errors("sessiond"):
        answer = await stub.GetEvents(request, timeout=_LIMIT)
    return [entry_of(event) for event in answer.events]


async def keep_blob(
    stub: "session_pb2_grpc.SessionAsyncStub", workspace: str, data: bytes, media_type: str
) -> str:
    """Put bytes; the blob's name in the log, `sha256:…`. Raises CarpalError."""
    digest = hashlib.sha256(data)
    info = types_pb2.BlobInfo(digest=digest.digest(), size=len(data), media_type=media_type)
    upload = Upload(stub.PutBlob())
    try:
        with rpc_errors("sessiond"):
            first = session_pb2.PutBlobRequest(
                info=info, workspace=workspace, data=data[:_PIECE], offset=0
            )
            going = await upload.send(first)
            offset = _PIECE
            while going and offset < len(data):
                piece = session_pb2.PutBlobRequest(
                    offset=offset, data=data[offset : offset + _PIECE]
                )
                going = await upload.send(piece)
                offset += _PIECE
            await upload.answer()
    finally:
        upload.close()
    return f"sha256:{digest.hexdigest()}"
