"""From a request on the link to its replies: which method answers it, and when it is over.

The answer to `execute` may move to an Attach stream: its last reply says so.
"""

import logging
import uuid
from collections.abc import AsyncIterator
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
    """The replies to one request; the last says so. Raises nothing but cancellation.

    With `attach`, what is large is not here: the last reply says `attached`.
    """
    kind = request.WhichOneof("call") or ""
    number = request.request_id
    try:
        if kind == "execute":
            replies = _execute_attached if attach else _execute_inline
            async for reply in replies(service, request):
                yield reply
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
        yield pb.Reply(request_id=number, last=True, status=to_status(error))
    except Exception:  # the one boundary of a request: its failure is its own
        incident = uuid.uuid4().hex[:12]
        log.exception("internal error", extra={"request": kind, "incident": incident})
        failed = refuse(
            Reason.INTERNAL,
            f"internal error {incident}",
            action=f"find {incident} in the daemon's log",
        )
        yield pb.Reply(request_id=number, last=True, status=to_status(failed))


async def _execute_attached(service: HandService, request: pb.Request) -> AsyncIterator[pb.Reply]:
    number, sent = request.request_id, 0
    async for response in service.execute(request.execute):
        last = _is_result(response)
        sent += len(response.output.data)
        if max(sent, response.ByteSize() if last else 0) > INLINE:
            yield pb.Reply(request_id=number, last=True, attached=True)
            return
        yield _reply(number, "execute", response, last=last)


async def _execute_inline(service: HandService, request: pb.Request) -> AsyncIterator[pb.Reply]:
    """All of it, but of a flood only the beginning, and last what was left out."""
    number, sent, end = request.request_id, 0, request.execute.output_offset
    left_out = hand_pb2.OutputChunk()
    async for response in service.execute(request.execute):
        last = _is_result(response)
        sent += len(response.output.data)
        if last and left_out.dropped_bytes:
            chunk = hand_pb2.ExecuteResponse(output=left_out)
            yield _reply(number, "execute", chunk, last=False)
        if last or sent <= _LIVE:
            yield _reply(number, "execute", response, last=last)
            end = response.output.offset + len(response.output.data)
        else:
            left_out.offset = response.output.offset + len(response.output.data)
            left_out.dropped_bytes = left_out.offset - end


def _reply(number: int, kind: str, response: Any, *, last: bool) -> pb.Reply:
    return pb.Reply(request_id=number, last=last, **{kind: response})


def _is_result(response: Any) -> bool:
    return "result" in response.DESCRIPTOR.fields_by_name and response.HasField("result")
