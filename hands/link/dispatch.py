"""From a request on the link to its replies: which method answers it, and when it is over.

The answer to `execute` may move to an Attach stream: its last reply says so.
"""

import logging
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from carpal.errors import CarpalError, refuse, to_status
from carpal.link_terms import STREAMS, UNARY
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.service import HandService

log = logging.getLogger(__name__)

INLINE = 32 * 1024
"""Bytes of a call's output, and of its result, that travel on the control stream."""
_LIVE = 64 * 1024
"""As many of the output for a brain that takes no Attach streams, and whatever result."""


async def answer(
    service: HandService, request: pb.Request, *, attach: bool = False
) -> AsyncIterator[pb.Reply]:
    """The replies to one request; the last says so. Raises the journal's errors, and no other.

    With `attach`, what is large is not here: the last reply says `attached`.
    """
    kind = request.WhichOneof("call") or ""
    number = request.request_id
    try:
        if kind == "execute":
            watched = service.execute(request.execute).watch(request.execute.output_offset)
            inline = _Attaching(number) if attach else _Inline(request)
            async for response in watched:
                for reply in inline.take(response):
                    yield reply
                    if reply.attached:
                        return
        elif kind in UNARY:
            response = await getattr(service, kind)(getattr(request, kind))
            yield _reply(number, kind, response, last=True)
        elif kind in STREAMS:
            last = False
            async for response in getattr(service, kind)(getattr(request, kind)):
                # Streams end by their result; it says so itself, so that nothing waits for more.
                last = _is_result(response)
                yield _reply(number, kind, response, last=last)
            if not last:
                yield pb.Reply(request_id=number, last=True)
        else:
            raise refuse(Reason.NOT_BUILT, "this daemon does not know the request")
    except CarpalError as error:
        status = to_status(service.gate.outward.error(error))
        yield pb.Reply(request_id=number, last=True, status=status)
    except sqlite3.Error:
        # The journal's: the daemon ends, for nobody knows what else it would not have written.
        raise
    except Exception:  # the one boundary of a request: its failure is its own
        incident = uuid.uuid4().hex[:12]
        log.exception("internal error", extra={"request": kind, "incident": incident})
        failed = refuse(
            Reason.INTERNAL,
            f"internal error {incident}",
            action=f"find {incident} in the daemon's log",
        )
        yield pb.Reply(request_id=number, last=True, status=to_status(failed))


class _Attaching:
    """A call's answer that moves to an Attach stream once it is large."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._sent = 0

    def take(self, response: hand_pb2.ExecuteResponse) -> Iterator[pb.Reply]:
        """The replies to send for it."""
        last = response.HasField("result")
        self._sent += len(response.output.data)
        if max(self._sent, response.ByteSize() if last else 0) > INLINE:
            yield pb.Reply(request_id=self._number, last=True, attached=True)
        else:
            yield _reply(self._number, "execute", response, last=last)


class _Inline:
    """All of it on the control stream; of a flood only the beginning, and what was left out."""

    def __init__(self, request: pb.Request) -> None:
        self._number = request.request_id
        self._sent = 0
        self._end = request.execute.output_offset
        self._left_out = hand_pb2.OutputChunk()

    def take(self, response: hand_pb2.ExecuteResponse) -> Iterator[pb.Reply]:
        """The replies to send for it."""
        last, left_out = response.HasField("result"), self._left_out
        self._sent += len(response.output.data)
        if last and left_out.dropped_bytes:
            chunk = hand_pb2.ExecuteResponse(output=left_out)
            yield _reply(self._number, "execute", chunk, last=False)
        if last or self._sent <= _LIVE:
            yield _reply(self._number, "execute", response, last=last)
            self._end = response.output.offset + len(response.output.data)
        else:
            left_out.offset = response.output.offset + len(response.output.data)
            left_out.dropped_bytes = left_out.offset - self._end


def _reply(number: int, kind: str, response: Any, *, last: bool) -> pb.Reply:
    return pb.Reply(request_id=number, last=last, **{kind: response})


def _is_result(response: Any) -> bool:
    return "result" in response.DESCRIPTOR.fields_by_name and response.HasField("result")
