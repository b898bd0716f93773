"""Bytes by their SHA-256."""

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from carpal.ids import new_id
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group
from sessiond.conformance.streams import uploaded

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

group = Group("blobs")
PIECE = 256 * 1024


def _bytes(size: int) -> bytes:
    """Bytes nobody has stored."""
    seed = new_id("blob").encode()
    return (seed * (size // len(seed) + 1))[:size]


def _info(data: bytes) -> types_pb2.BlobInfo:
    return types_pb2.BlobInfo(digest=sha256(data).digest(), size=len(data), media_type="text/plain")


def _pieces(
    data: bytes, info: types_pb2.BlobInfo, *, start: int = 0, end: int | None = None
) -> Iterator[pb.PutBlobRequest]:
    """The stream that stores a part of the bytes."""
    end = len(data) if end is None else end
    first = data[start : min(start + PIECE, end)]
    yield pb.PutBlobRequest(info=info, offset=start, data=first)
    for offset in range(start + PIECE, end, PIECE):
        yield pb.PutBlobRequest(offset=offset, data=data[offset : min(offset + PIECE, end)])


async def _put(bench: Bench, data: bytes) -> pb.PutBlobResponse:
    return await uploaded(bench.operator.PutBlob(), _pieces(data, _info(data)))


async def _get(
    stub: "SessionAsyncStub", digest: bytes, *, offset: int = 0, workspace: str = ""
) -> tuple[bytes, types_pb2.BlobInfo]:
    """A blob's bytes from an offset, and what it says of itself at first."""
    info: types_pb2.BlobInfo | None = None
    data = b""
    request = pb.GetBlobRequest(digest=digest, offset=offset, workspace=workspace)
    async for message in stub.GetBlob(request):
        info = info or message.info
        if message.data:
            equal("the offset of a piece", message.offset, offset + len(data))
        data += message.data
    must(info is not None, "the stream was empty")
    return data, info or types_pb2.BlobInfo()


@group
async def stored_and_read(bench: Bench) -> None:
    """A blob is read as it was stored, with its size and media type."""
    for size in (1, PIECE, 3 * PIECE + 17):
        data = _bytes(size)
        answer = await _put(bench, data)
        equal("held", answer.offset, size)
        equal("info", answer.info, _info(data))
        read, info = await _get(bench.operator, _info(data).digest)
        must(read == data, f"{len(read)} other bytes were read than the {size} stored")
        equal("info as read", info, _info(data))


@group
async def from_an_offset(bench: Bench) -> None:
    """A blob is read from any offset, within a piece or at its edge."""
    data = _bytes(2 * PIECE + 100)
    await _put(bench, data)
    for offset in (0, 1, PIECE, PIECE + 5, len(data) - 1):
        read, _ = await _get(bench.operator, _info(data).digest, offset=offset)
        must(read == data[offset:], f"from {offset} other bytes were read")


@group
async def stored_again(bench: Bench) -> None:
    """The same bytes again are the first answer."""
    data = _bytes(PIECE + 1)
    first = await _put(bench, data)
    equal("again", await _put(bench, data), first)
    info = _info(data)
    info.media_type = "image/png"
    again = await uploaded(bench.operator.PutBlob(), _pieces(data, info))
    equal("under another media type", again, first)


@group
async def stored_at_once(bench: Bench) -> None:
    """Several may store the same bytes at once."""
    data = _bytes(3 * PIECE + 5)
    answers = await asyncio.gather(*(_put(bench, data) for _ in range(5)))
    equal("held", {answer.offset for answer in answers}, {len(data)})
    must((await _get(bench.operator, _info(data).digest))[0] == data, "other bytes were read")


@group
async def empty(bench: Bench) -> None:
    """A blob may be empty, and what is read at its end says so with no data."""
    await _put(bench, b"")
    equal("read", await _get(bench.operator, _info(b"").digest), (b"", _info(b"")))
    data = _bytes(100)
    await _put(bench, data)
    read = await _get(bench.operator, _info(data).digest, offset=100)
    equal("read at the end", read, (b"", _info(data)))


@group
async def resumed(bench: Bench) -> None:
    """An upload that stopped is resumed from the offset in the answer, and is there when whole."""
    data = _bytes(3 * PIECE)
    info = _info(data)
    answer = await uploaded(bench.operator.PutBlob(), _pieces(data, info, end=PIECE))
    equal("held so far", answer.offset, PIECE)
    with refused(Reason.BLOB_NOT_FOUND):
        await _get(bench.operator, info.digest)
    answer = await uploaded(bench.operator.PutBlob(), _pieces(data, info, start=answer.offset))
    equal("held", answer.offset, len(data))
    must((await _get(bench.operator, info.digest))[0] == data, "other bytes were read")


@group
async def asked_where_to_resume(bench: Bench) -> None:
    """A stream without data says how much is held: nothing, a part, or all of it."""
    data = _bytes(2 * PIECE)
    info = _info(data)

    async def held() -> int:
        request = pb.PutBlobRequest(info=info)
        return (await uploaded(bench.operator.PutBlob(), [request])).offset

    equal("of nothing", await held(), 0)
    await uploaded(bench.operator.PutBlob(), _pieces(data, info, end=PIECE))
    equal("of a part", await held(), PIECE)
    await _put(bench, data)
    equal("of all", await held(), len(data))


@group
async def held_already(bench: Bench) -> None:
    """Bytes that are held already are skipped, so an upload may begin again from 0."""
    data = _bytes(2 * PIECE + 9)
    info = _info(data)
    await uploaded(bench.operator.PutBlob(), _pieces(data, info, end=PIECE + 9))
    equal("held", (await _put(bench, data)).offset, len(data))
    must((await _get(bench.operator, info.digest))[0] == data, "other bytes were read")


@group
async def beyond_what_is_held(bench: Bench) -> None:
    """An offset beyond the bytes held is refused, and so is more data than the size says."""
    data = _bytes(2 * PIECE)
    info = _info(data)
    with refused(Reason.INVALID_FIELD):
        await uploaded(bench.operator.PutBlob(), _pieces(data, info, start=PIECE))
    short = _info(data[:1000])
    short.size = 999
    with refused(Reason.INVALID_FIELD):
        await uploaded(bench.operator.PutBlob(), _pieces(data[:1000], short))


@group
async def digest_mismatch(bench: Bench) -> None:
    """Bytes that do not have the digest are DIGEST_MISMATCH, and can be sent again."""
    data = _bytes(1000)
    wrong = data[:-1] + b"!"
    with refused(Reason.DIGEST_MISMATCH):
        await uploaded(bench.operator.PutBlob(), _pieces(wrong, _info(data)))
    with refused(Reason.BLOB_NOT_FOUND):
        await _get(bench.operator, _info(data).digest)
    await _put(bench, data)
    must((await _get(bench.operator, _info(data).digest))[0] == data, "other bytes were read")


@group
async def piece_limit(bench: Bench) -> None:
    """A piece over 256 KiB, a blob over 5 GiB or a digest that is not 32 bytes is refused."""
    data = _bytes(PIECE + 1)
    with refused(Reason.INVALID_FIELD):
        await uploaded(bench.operator.PutBlob(), [pb.PutBlobRequest(info=_info(data), data=data)])
    short = types_pb2.BlobInfo(digest=b"short", size=1)
    huge = _info(_bytes(10))
    huge.size = 5 * 2**30 + 1
    for info in (short, huge):
        with refused(Reason.INVALID_FIELD):
            await uploaded(bench.operator.PutBlob(), [pb.PutBlobRequest(info=info)])


@group
async def unknown(bench: Bench) -> None:
    """A digest that nobody stored is BLOB_NOT_FOUND."""
    with refused(Reason.BLOB_NOT_FOUND):
        await _get(bench.operator, _info(_bytes(9)).digest)


@group
async def other_workspace(bench: Bench) -> None:
    """A blob is its workspace's: to another it is BLOB_NOT_FOUND until stored there too."""
    data = _bytes(1000)
    digest = _info(data).digest
    await _put(bench, data)
    with refused(Reason.BLOB_NOT_FOUND):
        await _get(bench.other, digest)
    await uploaded(bench.other.PutBlob(), _pieces(data, _info(data)))
    must((await _get(bench.other, digest))[0] == data, "other bytes were read")


@group
async def for_a_brain(bench: Bench) -> None:
    """A brain names the workspace whose blobs it reads and stores."""
    data = _bytes(1000)
    digest = _info(data).digest
    await _put(bench, data)
    read, _ = await _get(bench.brain, digest, workspace=bench.workspace)
    must(read == data, "other bytes were read")
    with refused(Reason.BLOB_NOT_FOUND):
        await _get(bench.brain, digest, workspace=bench.fresh("check"))
    with refused(Reason.INVALID_FIELD):
        await _get(bench.brain, digest)
    workspace = bench.fresh("check")
    request = pb.PutBlobRequest(info=_info(data), workspace=workspace, data=data)
    equal("held", (await uploaded(bench.brain.PutBlob(), [request])).offset, 1000)
    equal("read", (await _get(bench.brain, digest, workspace=workspace))[0], data)
