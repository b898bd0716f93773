"""A call as those who watch it see it: output from any offset on, then its result.

Watchers come and go with links; each starts at the offset it asks for, and
what was left out before a chunk is said with it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from carpal.v1 import hand_pb2 as pb
from hands.contract import Call, Output
from hands.life.kept import Keeping
from hands.life.masking import Masking
from hands.life.spool import Spool
from hands.owner.redact import Redactor
from hands.stopping import Stoppable

_NONE = Redactor(())
CHUNK = 64 * 1024
"""Bytes of output in one message on a stream that others share."""


class Running:
    """A call that waits in line, runs, or ended."""

    def __init__(
        self, call_id: str, call: Call | None, spool: Spool, result: pb.Result | None = None
    ) -> None:
        """`call` is None for one that an adopted hand already runs, or that ended before."""
        self.call_id = call_id
        self.call = call
        self.waits = call is not None
        """It waits for its turn, and the journal does not say yet that it starts."""
        self.began = call is None
        """The hand was told, or is about to be."""
        self.fetching = Stoppable()
        """Of the blobs that it names, before it begins: no longer than anybody waits for it."""
        self.spool = spool
        self.ended: Keeping | None = None
        """How it ended, before the journal has that: contents of files are taken first."""
        self.result = result
        self.redactor: Callable[[], Redactor] = lambda: _NONE
        """What is struck out of what is watched."""
        self.passes: Callable[[pb.Result], pb.Result] = lambda result: result
        """The result as it may leave."""
        self._change = asyncio.Event()

    def take(self, output: Output) -> None:
        """More output came."""
        self.spool.take(output)
        self._changed()

    def told(self, end: int) -> None:
        """The hand put output up to `end` into the spool, or left it out."""
        self.spool.told(end)
        self._changed()

    def finish(self, result: pb.Result) -> None:
        """It is over."""
        self.fetching.stop()
        self.spool.close()
        self.result = result
        self._changed()

    async def watch(self, offset: int, most: int = CHUNK) -> AsyncIterator[pb.ExecuteResponse]:
        """Output from `offset` on, as it comes, `most` bytes at once, and last the result."""
        masking: Masking | None = None
        while True:
            change = self._change
            redactor = self.redactor()
            if masking is not None:
                masking.redactor = redactor
            elif redactor:
                masking = Masking(redactor, self.spool, offset)
            if offset < self.spool.total:
                begin, data = self.spool.read(offset, most)
                if masking is None:
                    yield _chunk(begin, data, begin - offset)
                else:
                    for chunk in masking.take(begin, data):
                        yield chunk
                offset = begin + len(data)
            elif self.result is not None:
                for chunk in masking.end() if masking else ():
                    yield chunk
                yield pb.ExecuteResponse(result=self.passes(self.result))
                return
            else:
                await change.wait()

    def read(self, offset: int) -> None:
        """A watcher has output up to `offset` for good."""
        # What is before a place decides what of it is struck out, should it be asked for again.
        self.spool.free(max(0, offset - self.redactor().context))

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _chunk(offset: int, data: bytes, dropped: int) -> pb.ExecuteResponse:
    chunk = pb.OutputChunk(offset=offset, data=data, dropped_bytes=dropped)
    return pb.ExecuteResponse(output=chunk)
