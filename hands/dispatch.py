"""From a request on the link to its replies: which method answers it, and when it is over."""

import logging
import uuid
from collections.abc import AsyncIterator
from typing import Any

from carpal.errors import CarpalError, refuse, to_status
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from hands.service import HandService

log = logging.getLogger(__name__)

_UNARY = {
    "describe", "probe", "claim", "acknowledge", "cancel", "transfer", "release", "list_hands",
    "drain_hands",
}  # fmt: skip
_STREAMS = {"provision", "execute", "events", "save"}


async def answer(service: HandService, request: pb.Request) -> AsyncIterator[pb.Reply]:
    """The replies to one request; the last says so. Raises nothing but cancellation."""
    kind = request.WhichOneof("call") or ""
    number = request.request_id
    try:
        if kind in _UNARY:
            response = await getattr(service, kind)(getattr(request, kind))
            yield _reply(number, kind, response, last=True)
        elif kind in _STREAMS:
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


def _reply(number: int, kind: str, response: Any, *, last: bool) -> pb.Reply:
    return pb.Reply(request_id=number, last=last, **{kind: response})


def _is_result(response: Any) -> bool:
    return "result" in response.DESCRIPTOR.fields_by_name and response.HasField("result")
