"""An open call as those who watch it see it: output so far, then its result.

Watchers come and go with links; each starts at the offset it asks for. Only
the first 64 KiB are shown live. Of a flood, the rest is counted, so that the
daemon's memory and the link stay small; the result has its end.
"""

import asyncio
from collections.abc import AsyncIterator

from carpal.v1 import hand_pb2 as pb
from hands.api import Call, Output

_LIVE = 64 * 1024
"""Bytes of output shown live."""
_CHUNK = 64 * 1024
"""Bytes of output in one message."""


class Running:
    """A call that waits in line or runs."""

    def __init__(self, call_id: str, call: Call | None) -> None:
        """`call` is None for one that an adopted hand already runs."""
        self.call_id = call_id
        self.call = call
        self.began = call is None
        """The hand was told, or is about to be."""
        self.result: pb.Result | None = None
        self._head = bytearray()
        self._total = 0
        self._change = asyncio.Event()

    def take(self, output: Output) -> None:
        """More output came."""
        if output.offset == len(self._head):
            self._head += output.data[: _LIVE - len(self._head)]
        self._total = max(self._total, output.offset + len(output.data))
        self._changed()

    def finish(self, result: pb.Result) -> None:
        """It is over."""
        self.result = result
        self._changed()

    async def watch(self, offset: int) -> AsyncIterator[pb.ExecuteResponse]:
        """Output from `offset` on, as it comes, and last the result."""
        while True:
            change = self._change
            if offset < len(self._head):
                data = bytes(self._head[offset : offset + _CHUNK])
                yield _chunk(offset, data, 0)
                offset += len(data)
            elif offset < self._total:
                yield _chunk(self._total, b"", self._total - offset)
                offset = self._total
            elif self.result is not None:
                yield pb.ExecuteResponse(result=self.result)
                return
            else:
                await change.wait()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _chunk(offset: int, data: bytes, dropped: int) -> pb.ExecuteResponse:
    chunk = pb.OutputChunk(offset=offset, data=data, dropped_bytes=dropped)
    return pb.ExecuteResponse(output=chunk)
