"""Blobs over real mutual TLS: streams that break, lie, race and resume."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from carpal.client import rpc_errors
from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from sessiond.rules import blobs
from sessiond.rules.blobs import PIECE_BYTES
from tests.pki import Pki
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, refused
from tests.sessiond.serving import WAIT, Serving, serving

MIB = 1024 * 1024


def made(size: int, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)


def info(data: bytes, **fields: Any) -> types_pb2.BlobInfo:
    card = {"digest": sha256(data).digest(), "size": len(data), "media_type": "a/b", **fields}
    return types_pb2.BlobInfo(**card)


def pieces(
    data: bytes, *, start: int = 0, end: int | None = None, step: int = PIECE_BYTES, **fields: Any
) -> Iterator[pb.PutBlobRequest]:
    """The stream that puts `data[start:end]`."""
    end = len(data) if end is None else end
    yield pb.PutBlobRequest(info=info(data, **fields), offset=start)
    for offset in range(start, end, step):
        yield pb.PutBlobRequest(offset=offset, data=data[offset : min(offset + step, end)])


async def put(stub: Any, messages: Iterable[Any] | AsyncIterator[Any]) -> pb.PutBlobResponse:
    async with asyncio.timeout(WAIT):
        with rpc_errors("sessiond"):
            answer = await stub.PutBlob(messages)
    assert isinstance(answer, pb.PutBlobResponse)
    return answer


async def held(stub: Any, data: bytes) -> int:
    return (await put(stub, iter([pb.PutBlobRequest(info=info(data))]))).offset


async def get(stub: Any, data: bytes, offset: int = 0, workspace: str = "") -> bytes:
    request = pb.GetBlobRequest(digest=sha256(data).digest(), offset=offset, workspace=workspace)
    found = b""
    async with asyncio.timeout(WAIT):
        with rpc_errors("sessiond"):
            async for message in stub.GetBlob(request):
                assert message.HasField("info") == (message.offset == offset)
                assert message.offset == offset + len(found)
                assert len(message.data) <= PIECE_BYTES
                found += message.data
    return found


async def damage(sessions: Serving, statement: str, value: object) -> None:
    """What a disk may do."""

    def change(tx: Any) -> None:
        tx._connection.execute(statement, (value,))

    await sessions.parts.writer.run(change)


async def rows(sessions: Serving) -> tuple[int, int]:
    """Blobs and their pieces in the store, whatever their state."""

    def count(tx: Any, table: str) -> int:
        found: int = tx._connection.execute(f"SELECT count(*) FROM {table}")[0][0]
        return found

    return await sessions.parts.writer.run(
        lambda tx: (count(tx, "blobs"), count(tx, "blob_chunks"))
    )


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 17])
@pytest.mark.parametrize("step", [100_003, PIECE_BYTES])
async def test_a_blob_is_read_as_it_was_put(sessions: Serving, size: int, step: int) -> None:
    ada = await sessions.operator()
    data = made(size)
    answer = await put(ada, pieces(data, step=step))
    assert (answer.info, answer.offset) == (info(data), size)
    for offset in {0, size // 2, max(0, size - 1), size}:
        assert await get(ada, data, offset) == data[offset:]
    with refused(Reason.INVALID_FIELD):
        await get(ada, data, size + 1)
    with refused(Reason.INVALID_FIELD):
        await get(ada, data, 2**64 - 1)


async def test_an_upload_that_breaks_again_and_again_resumes_where_it_was(
    sessions: Serving,
) -> None:
    ada = await sessions.operator()
    random = Random(7)
    data = made(2 * MIB + 5)
    have = 0
    while have < len(data):
        end = min(len(data), have + random.randrange(1, 500_000))
        answer = await put(
            ada, pieces(data, start=have, end=end, step=random.choice([9_999, 65_536]))
        )
        assert answer.offset == end
        have = await held(ada, data)
        assert have == end
    assert await get(ada, data) == data


async def test_what_came_before_the_connection_broke_is_kept(sessions: Serving) -> None:
    ada = await sessions.operator()
    data = made(MIB)
    sent = asyncio.Event()

    async def broken() -> AsyncIterator[pb.PutBlobRequest]:
        for message in pieces(data, end=PIECE_BYTES + 100_000, step=50_000):
            yield message
        sent.set()
        await asyncio.Event().wait()

    committed = asyncio.Event()
    sessions.parts.writer.listen(lambda changes: committed.set())

    async def until_held(size: int) -> None:
        while await held(ada, data) < size:
            await committed.wait()
            committed.clear()

    call = ada.PutBlob(broken())
    async with asyncio.timeout(WAIT):
        await sent.wait()
        await until_held(PIECE_BYTES)
        call.cancel()
        await until_held(PIECE_BYTES + 1)  # what was not a whole piece yet
    assert (await put(ada, pieces(data))).offset == MIB
    assert await get(ada, data) == data


async def test_bytes_that_lie_are_dropped_and_true_ones_can_follow(sessions: Serving) -> None:
    ada = await sessions.operator()
    data = made(MIB)
    lie = pieces(data[:-1] + bytes([data[-1] ^ 1]), digest=sha256(data).digest())
    with refused(Reason.DIGEST_MISMATCH):
        await put(ada, lie)
    assert await held(ada, data) == 0
    with refused(Reason.BLOB_NOT_FOUND):
        await get(ada, data)
    await put(ada, pieces(data))
    assert await get(ada, data) == data


async def test_a_blob_that_lacked_nothing_but_its_end_is_whole_when_asked_for(
    sessions: Serving,
) -> None:
    ada = await sessions.operator()
    data = made(1000)
    want = blobs.wanted(ADA, "", info(data))
    # As a process leaves it that ends between a blob's last byte and its digest.
    await sessions.parts.writer.run(lambda tx: blobs.put(tx, want, 0, data, MIB))
    with refused(Reason.BLOB_NOT_FOUND):
        await get(ada, data)
    assert await held(ada, data) == 1000
    assert await get(ada, data) == data


async def test_bytes_that_could_not_be_read_back_just_then_stay(
    sessions: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await sessions.operator()
    data = made(MIB)

    def fails(reading: blobs.Reading, reader: object) -> bool:
        raise refuse(Reason.UNAVAILABLE, "the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(blobs.Reading, "step", fails)
        with refused(Reason.UNAVAILABLE):
            await put(ada, pieces(data))
    assert await held(ada, data) == MIB
    assert await get(ada, data) == data


async def test_an_empty_blob_has_one_digest(sessions: Serving) -> None:
    ada = await sessions.operator()
    with refused(Reason.DIGEST_MISMATCH):
        await put(ada, iter([pb.PutBlobRequest(info=info(b"", digest=bytes(32)))]))
    answer = await put(ada, pieces(b""))
    assert (answer.info.size, answer.offset) == (0, 0)
    assert await get(ada, b"") == b""


async def test_a_blob_that_is_there_is_answered_without_its_bytes(sessions: Serving) -> None:
    ada = await sessions.operator()
    data = made(MIB)
    first = await put(ada, pieces(data))

    async def endless() -> AsyncIterator[pb.PutBlobRequest]:
        yield pb.PutBlobRequest(info=info(data, media_type="other/type"))
        await asyncio.Event().wait()

    assert await put(ada, endless()) == first
    assert await held(ada, data) == MIB


async def test_two_that_put_one_blob_at_once_both_succeed(sessions: Serving) -> None:
    ada, brain = await sessions.operator(), await sessions.brain()
    data = made(3 * MIB)

    def from_brain() -> Iterator[pb.PutBlobRequest]:
        for message in pieces(data, step=77_777):
            if message.HasField("info"):
                message.workspace = "default"
            yield message

    answers = await asyncio.gather(put(ada, pieces(data)), put(brain, from_brain()))
    assert [answer.offset for answer in answers] == [3 * MIB, 3 * MIB]
    assert await get(brain, data, workspace="default") == data


@pytest.mark.parametrize(
    ("field", "messages"),
    [
        ("info", []),
        ("info", [pb.PutBlobRequest(data=b"x")]),
        ("info", [pb.PutBlobRequest(info=info(b"abc")), pb.PutBlobRequest(info=info(b"abc"))]),
        ("info.digest", [pb.PutBlobRequest(info=info(b"abc", digest=b"short"))]),
        ("info.size", [pb.PutBlobRequest(info=info(b"abc", size=2**64 - 1))]),
        ("info.size", [pb.PutBlobRequest(info=info(b"abc", size=5 * 1024**3 + 1))]),
        ("info.media_type", [pb.PutBlobRequest(info=info(b"abc", media_type="\n"))]),
        ("offset", [pb.PutBlobRequest(info=info(b"abc"), offset=1, data=b"bc")]),
        ("offset", [pb.PutBlobRequest(info=info(b"abc"), offset=2**64 - 1, data=b"a")]),
        ("data", [pb.PutBlobRequest(info=info(b"abc"), data=b"abcd")]),
        ("data", [pb.PutBlobRequest(info=info(b"abc", size=0), data=b"a")]),
        (
            "data",
            [
                pb.PutBlobRequest(info=info(b"abc"), data=b"abc"),
                pb.PutBlobRequest(offset=3, data=b"d"),
            ],
        ),
        (
            "data",
            [pb.PutBlobRequest(info=info(b"abc", size=MIB), data=bytes(PIECE_BYTES + 1))],
        ),
        (
            "workspace",
            [pb.PutBlobRequest(info=info(b"abc"), workspace="elsewhere", data=b"abc")],
        ),
    ],
)
async def test_a_stream_that_makes_no_sense_is_refused_by_field(
    sessions: Serving, field: str, messages: list[pb.PutBlobRequest]
) -> None:
    ada = await sessions.operator()
    with refused(Reason.INVALID_FIELD) as caught:
        await put(ada, iter(messages))
    assert caught.value.fields["field"] == field
    with refused(Reason.BLOB_NOT_FOUND):
        await get(ada, b"abc")


async def test_a_blob_is_its_workspaces(sessions: Serving) -> None:
    ada, eve = await sessions.operator(), await sessions.operator("eve", "elsewhere")
    brain = await sessions.brain()
    data = made(1000)
    await put(ada, pieces(data))
    assert await held(eve, data) == 0
    with refused(Reason.BLOB_NOT_FOUND):
        await get(eve, data)
    with refused(Reason.BLOB_NOT_FOUND):
        await get(brain, data, workspace="elsewhere")
    with refused(Reason.INVALID_FIELD):
        await get(brain, data)
    with refused(Reason.INVALID_FIELD):
        await put(brain, pieces(data))
    await put(eve, pieces(data))
    assert await get(brain, data, workspace="elsewhere") == data


async def test_a_digest_of_another_length_is_no_digest(sessions: Serving) -> None:
    ada = await sessions.operator()
    for digest in (b"", bytes(31), bytes(33)):
        with refused(Reason.INVALID_FIELD), rpc_errors("sessiond"):
            async for _ in ada.GetBlob(pb.GetBlobRequest(digest=digest)):
                pass


async def test_a_workspace_that_is_full_takes_no_blob_but_finishes_those_begun(
    tmp_path: Path, pki: Pki, clock: FakeClock
) -> None:
    async with serving(tmp_path, pki, clock, blob_cap=1500) as sessions:
        ada, eve = await sessions.operator(), await sessions.operator("eve", "elsewhere")
        first, second = made(1000, 1), made(501, 2)
        await put(ada, pieces(first, end=10))
        with refused(Reason.STORE_FULL):
            await put(ada, pieces(second))
        await put(eve, pieces(second))
        await put(ada, pieces(first, start=10))
        assert await get(ada, first) == first
        await put(ada, pieces(second[:500]))


async def test_a_reader_that_stops_holds_up_nobody(sessions: Serving) -> None:
    ada = await sessions.operator()
    large, small = made(8 * MIB), made(10)
    await put(ada, pieces(large))
    async with asyncio.timeout(WAIT):
        slow = [
            aiter(ada.GetBlob(pb.GetBlobRequest(digest=sha256(large).digest()))) for _ in range(8)
        ]
        begun = [(await anext(reader)).data for reader in slow]
    await put(ada, pieces(small))
    assert await get(ada, small) == small
    async with asyncio.timeout(WAIT):
        for first, reader in zip(begun, slow, strict=True):
            assert first + b"".join([message.data async for message in reader]) == large


async def test_damaged_bytes_are_never_handed_out(sessions: Serving) -> None:
    ada = await sessions.operator()
    data = made(2 * PIECE_BYTES)
    await put(ada, pieces(data))
    await damage(sessions, "UPDATE blob_chunks SET data = $1 WHERE start > 0", bytes(PIECE_BYTES))
    found = b""
    with refused(Reason.DATA_CORRUPT), rpc_errors("sessiond"):
        async for message in ada.GetBlob(pb.GetBlobRequest(digest=sha256(data).digest())):
            found += message.data
    assert found == data[:PIECE_BYTES]


async def test_an_upload_that_the_store_damaged_is_dropped_so_that_it_can_be_sent_again(
    sessions: Serving,
) -> None:
    ada = await sessions.operator()
    data = made(PIECE_BYTES + 5)
    await put(ada, pieces(data, end=PIECE_BYTES))
    await damage(sessions, "UPDATE blob_chunks SET checksum = $1", 0)
    with refused(Reason.DATA_CORRUPT):
        await put(ada, pieces(data, start=PIECE_BYTES))
    assert await held(ada, data) == 0
    await put(ada, pieces(data))
    assert await get(ada, data) == data


async def test_an_upload_that_stood_still_for_a_day_is_gone_and_a_slower_one_is_not(
    sessions: Serving,
) -> None:
    ada = await sessions.operator()
    still, slow = made(MIB, 1), made(MIB, 2)
    await put(ada, pieces(still, end=1000))
    await put(ada, pieces(slow, end=1000))
    await sessions.advance(23 * 3600)
    await put(ada, pieces(slow, start=1000, end=2000))
    assert (await held(ada, still), await held(ada, slow)) == (1000, 2000)
    await sessions.advance(2 * 3600)
    assert (await held(ada, still), await held(ada, slow)) == (0, 2000)
    assert await rows(sessions) == (1, 2)


async def test_of_bytes_that_lied_nothing_stays_in_the_store(sessions: Serving) -> None:
    ada = await sessions.operator()
    data = made(5 * MIB)
    with refused(Reason.DIGEST_MISMATCH):
        await put(ada, pieces(data, digest=bytes(32)))
    await sessions.parts.sweeper.act()
    assert await rows(sessions) == (0, 0)
