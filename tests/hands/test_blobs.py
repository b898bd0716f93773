"""Blobs over the daemon's own links, which may break in the middle."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carpal.client import dial
from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.server import Context
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc, types_pb2
from hands.blobs import Blobs
from tests.hands.fake_brain import FakeBrain, brain
from tests.hands.place import PATIENCE
from tests.pki import Pki

DATA = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(DATA).digest()


class Breaking(FakeBrain):
    """Gives and takes a blob, and breaks on the way as often as it is told to."""

    breaks = 0
    away = 0
    """Requests that are refused at once, as when sessiond is down."""
    lies = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.offsets: list[int] = []
        self.taken = bytearray()

    async def ReadBlob(
        self, request: pb.ReadBlobRequest, context: Context
    ) -> AsyncIterator[pb.ReadBlobResponse]:
        self.offsets.append(request.offset)
        self._is_there()
        info: types_pb2.BlobInfo | None = types_pb2.BlobInfo(digest=DIGEST, size=len(DATA))
        for offset in range(request.offset, len(DATA), 200_000):
            data = DATA[offset : offset + 200_000]
            data = bytes(len(data)) if self.lies else data
            yield pb.ReadBlobResponse(info=info, offset=offset, data=data)
            info = None
            if self.breaks:
                self.breaks -= 1
                raise refuse(Reason.UNAVAILABLE, "this brain stops")

    async def WriteBlob(
        self, request_iterator: AsyncIterator[pb.WriteBlobRequest], context: Context
    ) -> pb.WriteBlobResponse:
        self._is_there()
        async for message in request_iterator:
            if self.breaks:
                self.breaks -= 1
                raise refuse(Reason.UNAVAILABLE, "this brain stops")
            assert message.offset <= len(self.taken)
            del self.taken[message.offset :]
            self.taken += message.data
        return pb.WriteBlobResponse(offset=len(self.taken))

    def _is_there(self) -> None:
        if self.away:
            self.away -= 1
            raise refuse(Reason.UNAVAILABLE, "sessiond is down")


@asynccontextmanager
async def linked(pki: Pki, link_limit: float = 60.0) -> AsyncIterator[tuple[Breaking, Blobs]]:
    """A brain, and blobs by way of it."""
    async with brain(pki, "b", kind=Breaking) as fake:
        assert isinstance(fake, Breaking)
        files = pki.issue(Role.DAEMON, "d")
        async with dial(fake.address, Role.BRAIN, files, retry=False) as channel:
            blobs = Blobs(link_limit)
            blobs.linked(orchestrator_pb2_grpc.OrchestratorStub(channel))
            yield fake, blobs


async def read(blobs: Blobs) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return b"".join([piece async for piece in blobs.read("s", DIGEST)])


async def test_a_blob_is_read_on_where_it_broke(pki: Pki) -> None:
    async with linked(pki) as (fake, blobs):
        fake.breaks = 3
        assert await read(blobs) == DATA
        assert fake.offsets == [0, 200_000, 400_000, 600_000]


async def test_a_blob_of_another_digest_counts_as_not_come(pki: Pki) -> None:
    async with linked(pki) as (fake, blobs):
        fake.lies = True
        with pytest.raises(CarpalError) as caught:
            await read(blobs)
        assert caught.value.reason is Reason.DATA_CORRUPT


async def write(blobs: Blobs) -> None:
    info = types_pb2.BlobInfo(digest=DIGEST, size=len(DATA))
    with tempfile.TemporaryFile() as file:
        file.write(DATA)
        async with asyncio.timeout(PATIENCE):
            await blobs.write("s", file, info)


async def test_a_blob_is_sent_again_when_that_broke(pki: Pki) -> None:
    async with linked(pki) as (fake, blobs):
        fake.breaks = 2
        await write(blobs)
        assert fake.taken == DATA


async def test_a_store_that_is_away_for_a_while_is_waited_for_and_not_asked_in_a_storm(
    pki: Pki,
) -> None:
    async with linked(pki) as (fake, blobs):
        fake.away = 5
        assert await read(blobs) == DATA
        fake.away = 5
        await write(blobs)
        assert fake.taken == DATA
    async with linked(pki, link_limit=0.5) as (fake, blobs):
        fake.away = 1000
        for trying in (read, write):
            with pytest.raises(CarpalError) as caught:
                await trying(blobs)
            # A refusal may overtake what is still being written, and read as a cut.
            assert caught.value.reason in {Reason.UNAVAILABLE, Reason.UNREACHABLE}
            assert trying is write or "sessiond is down" in caught.value.message
        assert 1000 - fake.away < 100


async def test_without_a_link_one_is_waited_for_and_not_for_ever(pki: Pki) -> None:
    async with linked(pki) as (_, blobs):
        stub: Any = blobs._stub
        blobs.left(stub)
        reading = asyncio.create_task(read(blobs))
        await asyncio.sleep(0)
        blobs.linked(stub)
        assert await reading == DATA
    with pytest.raises(CarpalError) as caught:
        await read(Blobs(link_limit=0.01))
    assert caught.value.reason is Reason.DAEMON_NOT_LINKED


async def test_a_link_is_waited_for_once_and_its_absence_then_told_at_once() -> None:
    clock = asyncio.get_running_loop().time
    for trying in (read, write):
        begun = clock()
        with pytest.raises(CarpalError) as caught:
            await trying(Blobs(link_limit=1.0))
        assert caught.value.reason is Reason.DAEMON_NOT_LINKED
        assert clock() - begun < 4.5  # five waits, of which each was within the limit
