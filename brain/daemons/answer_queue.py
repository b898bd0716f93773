"""Replies of one answer that came and were not read yet, within bounds.

The control stream waits for nobody, so a daemon without Attach streams, or an
answer that may not move to one, can say more than its reader takes. Output
for which there is no room is left out, and the chunk after it says so, as
everywhere. Nothing else may be left out: there the answer ends, and is asked
for again by who still wants it.
"""

import asyncio
from typing import NamedTuple

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb

WAITING_MAX = 1024 * 1024
"""Bytes that may wait for a reader."""
_LEAST = 1024
"""Bytes that a reply counts for at least: a small one holds on to the frame it came in."""


class Came(NamedTuple):
    """One reply, or what ended the answer."""

    reply: pb.Reply | CarpalError
    taken: asyncio.Event | None = None
    """To be set once it was read: an Attach stream waits for that."""
    size: int = 0


class AnswerQueue:
    """In order, for one reader."""

    def __init__(self) -> None:
        self.cut = False
        """It ended because of its reader: what still comes is not kept."""
        self._came: asyncio.Queue[Came] = asyncio.Queue()
        self._waiting = 0
        self._left_out: pb.Reply | None = None
        """Stands at the end of what waits, for output there was no room for."""

    def put(self, reply: pb.Reply | CarpalError) -> None:
        """It came on the control stream, or ended the answer."""
        if self.cut:
            return
        if isinstance(reply, CarpalError) or reply.last:
            self._came.put_nowait(Came(reply))
            return
        size = max(reply.ByteSize(), _LEAST)
        if self._waiting + size <= WAITING_MAX:
            self._waiting += size
            self._left_out = None
            self._came.put_nowait(Came(reply, size=size))
        elif reply.execute.WhichOneof("step") == "output":
            self._leave_out(reply)
        else:
            self.cut = True
            why = f"more than {WAITING_MAX} bytes of the answer were not read"
            self._came.put_nowait(Came(refuse(Reason.DAEMON_NOT_LINKED, why)))

    def give(self, reply: pb.Reply) -> asyncio.Event:
        """It came on an Attach stream, which goes on once the event is set: it was read."""
        taken = asyncio.Event()
        self._came.put_nowait(Came(reply, taken))
        return taken

    async def get(self) -> Came:
        """The next."""
        came = await self._came.get()
        self._waiting -= came.size
        if came.reply is self._left_out:
            self._left_out = None
        return came

    def _leave_out(self, reply: pb.Reply) -> None:
        """Only say where the output stands: who reads it sees the gap."""
        output = reply.execute.output
        if self._left_out is None:
            self._left_out = pb.Reply(request_id=reply.request_id)
            self._came.put_nowait(Came(self._left_out))
        self._left_out.execute.output.offset = output.offset + len(output.data)
