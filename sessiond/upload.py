"""One PutBlob stream: small pieces are gathered, and one job at a time writes them.

The client is read no faster than its bytes become durable, and what waits in memory
is two pieces at most.
"""

from functools import partial

from carpal.errors import CarpalError, invalid
from carpal.status import Reason
from sessiond.readers import Readers
from sessiond.rows import Needs
from sessiond.rules import blobs
from sessiond.store_blobs import BlobRow
from sessiond.writer import Writer


class Upload:
    """The state of one stream."""

    def __init__(self, writer: Writer, readers: Readers, wanted: blobs.Wanted, cap: int) -> None:
        """`cap` is what the workspace's blobs may have in all, in bytes."""
        self._writer = writer
        self._readers = readers
        self._wanted = wanted
        self._cap = cap
        self._needs = Needs(workspaces=(wanted.workspace,))
        self._row: BlobRow | None = None
        self._start = 0
        """Where what was gathered begins."""
        self._gathered = bytearray()

    @property
    def done(self) -> bool:
        """The blob is complete: nothing more needs to be read."""
        return blobs.is_done(self._row)

    async def begin(self) -> None:
        """Look what is held."""
        wanted = self._wanted
        self._row = await self._readers.run(
            lambda reader: reader.blobs.find(wanted.workspace, wanted.digest)
        )
        self._start = blobs.held(self._row, wanted)

    async def take(self, offset: int, data: bytes) -> None:
        """The stream's next bytes."""
        if len(data) > blobs.PIECE_BYTES:
            raise invalid("data", f"{len(data)} bytes; at most {blobs.PIECE_BYTES} go in a message")
        end = self._start + len(self._gathered)
        if offset > end:
            raise blobs.beyond(end)
        if offset + len(data) > self._wanted.size:
            raise blobs.too_much(self._wanted)
        self._gathered += data[end - offset :]
        while len(self._gathered) >= blobs.PIECE_BYTES and not self.done:
            await self._write()

    async def keep(self) -> None:
        """Write what was gathered."""
        while self._gathered and not self.done:
            await self._write()

    async def finish(self) -> BlobRow:
        """The stream ended: the blob as it is now, completed if all of it is here."""
        await self.keep()
        if self._wanted.size == 0 and not self.done:
            await self._put(b"")
        row = self._row
        if row is not None and self.done:
            return row
        if row is None or row.size != self._wanted.size:
            return BlobRow(**self._wanted._asdict())
        return await self._settle(row) if row.held == row.size else row

    async def _write(self) -> None:
        piece = bytes(self._gathered[: blobs.PIECE_BYTES])
        await self._put(piece)
        # Not before: a stream that breaks meanwhile has what was gathered kept.
        del self._gathered[: len(piece)]
        self._start += len(piece)

    async def _put(self, data: bytes) -> None:
        job = partial(blobs.put, wanted=self._wanted, start=self._start, data=data, cap=self._cap)
        self._row = await self._writer.run(job, len(data), self._needs)

    async def _settle(self, row: BlobRow) -> BlobRow:
        reading = blobs.Reading(row)
        problem: CarpalError | None
        try:
            while not await self._readers.run(reading.step):
                pass
            problem = reading.problem()
        except CarpalError as error:
            if error.reason is not Reason.DATA_CORRUPT:
                raise  # the bytes are not to blame: they stay
            problem = error
        job = partial(blobs.settle, read=row, problem=problem)
        settled = await self._writer.run(job, needs=self._needs)
        if settled is None:
            assert problem is not None
            raise problem
        return settled
