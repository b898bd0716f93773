"""What a drive asks of sessiond beside appending and following: slices of its log, and blobs."""

import hashlib
from collections.abc import Sequence
from io import BytesIO
from typing import IO, TYPE_CHECKING

from brain.session.entries import Entry
from brain.session.log import entry_of
from carpal.client import held, rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.upload import Upload
from carpal.v1 import session_pb2, types_pb2

if TYPE_CHECKING:
    from carpal.v1 import session_pb2_grpc

_LIMIT = 10.0
"""Seconds sessiond has for a slice."""
_BLOB_LIMIT = 30.0
"""Seconds for all of a blob."""
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
    await keep_file(stub, workspace, info, BytesIO(data))
    return f"sha256:{digest.hexdigest()}"


async def keep_file(
    stub: "session_pb2_grpc.SessionAsyncStub",
    workspace: str,
    info: types_pb2.BlobInfo,
    file: IO[bytes],
) -> None:
    """Put the bytes of a file, whose digest and size `info` has. Raises CarpalError."""
    file.seek(0)
    upload = Upload(stub.PutBlob())
    try:
        with rpc_errors("sessiond"):
            first = session_pb2.PutBlobRequest(
                info=info, workspace=workspace, data=file.read(_PIECE), offset=0
            )
            going = await upload.send(first)
            while going and (data := file.read(_PIECE)):
                offset = file.tell() - len(data)
                going = await upload.send(session_pb2.PutBlobRequest(offset=offset, data=data))
            await upload.answer()
    finally:
        upload.close()


async def read_blob(
    stub: "session_pb2_grpc.SessionAsyncStub", workspace: str, name: str, size: int
) -> bytes | None:
    """The bytes of a blob, `sha256:…`, if they are there and no more than `size`. CarpalError."""
    digest = bytes.fromhex(name.removeprefix("sha256:"))
    call = stub.GetBlob(
        session_pb2.GetBlobRequest(digest=digest, workspace=workspace), timeout=_BLOB_LIMIT
    )
    data = bytearray()
    try:
        with rpc_errors("sessiond"), held(call):
            async for answer in call:
                data += answer.data
                if len(data) > size:
                    return None
    except CarpalError as error:
        if error.reason is not Reason.BLOB_NOT_FOUND:
            raise
        return None
    return bytes(data) if hashlib.sha256(data).digest() == digest else None


async def head_of(
    stub: "session_pb2_grpc.SessionAsyncStub", session_id: str, workspace: str
) -> int:
    """The head of a log of the workspace. SESSION_NOT_FOUND for another's too; CarpalError."""
    asked = session_pb2.GetSessionRequest(session_id=session_id)
    with rpc_errors("sessiond"):
        session = (await stub.GetSession(asked, timeout=_LIMIT)).session
    if session.workspace != workspace:
        raise refuse(Reason.SESSION_NOT_FOUND, f"no session {session_id!r}")
    return session.head.position


async def read_exact(
    stub: "session_pb2_grpc.SessionAsyncStub", session_id: str, after: int
) -> list[types_pb2.Event]:
    """The events above a position as sessiond has them, 2 MiB of them at most. CarpalError."""
    asked = session_pb2.GetEventsRequest(session_id=session_id, after=after, limit=1000)
    with rpc_errors("sessiond"):
        return list((await stub.GetEvents(asked, timeout=_LIMIT)).events)
