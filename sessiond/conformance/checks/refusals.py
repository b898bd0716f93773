"""How a refusal is said: its reason in a form that programs read, and never too large."""

from collections.abc import Awaitable

import grpc
from google.protobuf import any_pb2

from carpal.rpc import error_details_pb2, status_pb2
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.verdict import Failed, equal, must
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("sessions")
DETAILS = "grpc-status-details-bin"
DETAILS_BYTES = 4096


async def _details(call: Awaitable[object]) -> bytes:
    """The details of a call's refusal, serialized."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        for key, value in error.trailing_metadata() or ():
            if key == DETAILS:
                return value if isinstance(value, bytes) else value.encode()
        raise Failed(f"{error.code().name} came without {DETAILS}") from None
    raise Failed("was not refused")


@group
async def reasons_are_typed(bench: Bench) -> None:
    """A refusal has one ErrorInfo, of domain `carpal` with the reason, beside its code."""
    made = await bench.session()
    unknown = pb.GetSessionRequest(session_id=bench.fresh("sesn"))
    malformed = pb.GetSessionRequest(session_id="a/b")
    forbidden = pb.AcquireLeaseRequest(resource=f"session/{made.session_id}")
    for call, reason, code in (
        (bench.operator.GetSession(unknown), Reason.SESSION_NOT_FOUND, grpc.StatusCode.NOT_FOUND),
        (
            bench.operator.GetSession(malformed),
            Reason.INVALID_FIELD,
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            bench.operator.AcquireLease(forbidden),
            Reason.ROLE_NOT_ALLOWED,
            grpc.StatusCode.PERMISSION_DENIED,
        ),
    ):
        status = status_pb2.Status.FromString(await _details(call))
        equal("the code in the details", status.code, code.value[0])
        infos = [_info(detail) for detail in status.details if _is_info(detail)]
        equal(
            "domain and reason", [(one.domain, one.reason) for one in infos], [("carpal", reason)]
        )


@group
async def details_are_small(bench: Bench) -> None:
    """What was refused may be huge; the details of its refusal have 4 KiB at most."""
    huge = "x" * 200_000
    made = await bench.session()
    event = bench.event(type=huge)
    for call in (
        bench.operator.GetSession(pb.GetSessionRequest(session_id=huge)),
        bench.operator.GetEvents(
            pb.GetEventsRequest(session_id=made.session_id, types=[f"*{huge}"])
        ),
        bench.operator.EmitEvent(pb.EmitEventRequest(session_id=made.session_id, event=event)),
        bench.brain.AcquireLease(pb.AcquireLeaseRequest(resource=huge)),
    ):
        size = len(await _details(call))
        must(size <= DETAILS_BYTES, f"{size} bytes of details")


def _is_info(detail: any_pb2.Any) -> bool:
    return detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)


def _info(detail: any_pb2.Any) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    detail.Unpack(info)
    return info
