"""Events about hands that a brain writes into logs which it does not drive: each is there once."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from google.protobuf.timestamp_pb2 import Timestamp

from carpal.client import rpc_errors
from carpal.errors import BadInput, CarpalError, Conflict, NotFound
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

STORE_LIMIT = 10.0
"""Seconds sessiond has to answer."""
FOR_GOOD = (NotFound, Conflict, BadInput)
"""Refusals after which no log is to be told: it is gone, or archived, or the event is none. What
else there is, such as a full disk, passes."""


async def emit(
    sessions: "SessionAsyncStub", session_id: str, event: types_pb2.NewEvent, *, wake: bool = False
) -> None:
    """Write it, unless it is there, in whatever words. Raises what sessiond refuses."""
    request = session_pb2.EmitEventRequest(session_id=session_id, event=event, wake=wake)
    try:
        with rpc_errors("sessiond"):
            await sessions.EmitEvent(request, timeout=STORE_LIMIT)
    except CarpalError as error:
        if error.reason is not Reason.ID_REUSED:
            raise


def at(time: Timestamp) -> dict[str, Any]:
    """The member `at` of an event: when it was, as a daemon says; none for a time that is none."""
    with suppress(ValueError):
        return {"at": time.ToJsonString()}
    return {}
