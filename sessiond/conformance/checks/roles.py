"""Who may do what, and that nothing crosses from one workspace to another."""

from collections.abc import Iterable
from typing import Any

import grpc

from carpal.authz import allowed
from carpal.client import from_rpc
from carpal.identity import Role, server_name
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1.session_pb2_grpc import SessionStub
from carpal.verdict import PEER, Failed, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group
from sessiond.conformance.streams import uploaded

group = Group("roles")
SERVICE = pb.DESCRIPTOR.services_by_name["Session"]


async def _held_to_the_table(bench: Bench, seat: str) -> None:
    """Call every method with nothing in it: the role alone decides whether it may be."""
    caller = bench.caller(seat)
    for method in SERVICE.methods:
        may = allowed(f"/{SERVICE.full_name}/{method.name}", caller.identity.role)
        if may and method.server_streaming:
            continue  # a watch of everything would be answered, and not end
        reason = await _refusal(caller.stub, method, may=may)
        if may and reason is Reason.ROLE_NOT_ALLOWED:
            raise Failed(f"{method.name} is not allowed")
        if not may and reason is not Reason.ROLE_NOT_ALLOWED:
            raise Failed(f"{method.name}: {reason or 'answered'}, where ROLE_NOT_ALLOWED was due")


async def _refusal(stub: Any, method: Any, *, may: bool) -> Reason | None:
    """Why an empty request is refused; None when it is not."""
    request = getattr(pb, method.input_type.name)()
    call = getattr(stub, method.name)
    try:
        if not method.client_streaming:
            answer = call(request)
        elif may:
            await uploaded(call(), [request])
            return None
        else:
            answer = call()  # who may not is refused before a message is sent
        if method.server_streaming:
            await answer.read()
            answer.cancel()
        else:
            await answer
    except grpc.RpcError as error:
        return from_rpc(error, PEER).reason
    return None


@group
async def operators_methods(bench: Bench) -> None:
    """An operator calls the methods its role has a row for, and no others."""
    await _held_to_the_table(bench, "operator")


@group
async def brains_methods(bench: Bench) -> None:
    """A brain calls the methods its role has a row for, and no others."""
    await _held_to_the_table(bench, "brain")


@group
async def vaults_methods(bench: Bench) -> None:
    """The vault calls the methods its role has a row for, and no others."""
    await _held_to_the_table(bench, "vault")


@group
async def daemons_methods(bench: Bench) -> None:
    """A daemon calls no method of the session service."""
    await _held_to_the_table(bench, "daemon")


@group
async def without_a_certificate(bench: Bench) -> None:
    """Without a certificate nothing is answered."""
    caller = bench.caller("operator")
    name = server_name(Role.SESSIOND, caller.identity.trust_domain)
    channel = grpc.aio.secure_channel(
        caller.endpoint,
        grpc.ssl_channel_credentials(caller.ca),
        options=[("grpc.ssl_target_name_override", name), ("grpc.enable_retries", 0)],
    )
    async with channel:
        try:
            await SessionStub(channel).ListSessions(pb.ListSessionsRequest())
        except grpc.aio.AioRpcError as error:
            # By TLS itself, which says no more, or by the service.
            refusals = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED)
            must(error.code() in refusals, f"refused as {error.code().name}")
            return
    raise Failed("it was answered")


@group
async def vault_serves_all(bench: Bench) -> None:
    """Brains and the vault read the sessions of every workspace."""
    made = await bench.session()
    request = pb.GetSessionRequest(session_id=made.session_id)
    for seat in ("brain", "vault"):
        answer = await bench.caller(seat).stub.GetSession(request)
        must(answer.session.workspace == made.workspace, "the workspace is another")


@group
async def nothing_crosses(bench: Bench) -> None:
    """To an operator of another workspace a session does not exist, whatever it asks."""
    made = await bench.session(bench.events(2))
    id = made.session_id
    other = bench.other
    calls: Iterable[tuple[Any, Any]] = (
        (other.GetSession, pb.GetSessionRequest(session_id=id)),
        (other.GetEvents, pb.GetEventsRequest(session_id=id)),
        (other.ArchiveSession, pb.ArchiveSessionRequest(session_id=id)),
        (
            other.UpdateSession,
            pb.UpdateSessionRequest(session_id=id, event_id=bench.fresh("sevt"), title="t"),
        ),
        (other.EmitEvent, pb.EmitEventRequest(session_id=id, event=bench.event())),
    )
    for method, request in calls:
        with refused(Reason.SESSION_NOT_FOUND):
            await method(request)
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.tail({id: 0}, stub=other).read()
    lane = bench.lane(other)
    await lane.send(id, bench.event())
    refusal = await lane.refusal()
    must(refusal.status.code == grpc.StatusCode.NOT_FOUND.value[0], refusal.status.message)
    listed = await other.ListSessions(pb.ListSessionsRequest(limit=1000, include_archived=True))
    must(all(one.session_id != id for one in listed.sessions), "it is listed")
    must(len(await bench.log(id)) == 2, "the log has changed")


@group
async def ids_do_not_cross(bench: Bench) -> None:
    """An id that another workspace has is refused without a word of what is there."""
    made = await bench.session(title="private")
    with refused(Reason.ID_REUSED):
        request = pb.CreateSessionRequest(session_id=made.session_id, title="private")
        await bench.other.CreateSession(request)


@group
async def own_workspace_alone(bench: Bench) -> None:
    """An operator creates and lists in no workspace but its own."""
    workspace = bench.caller("other-operator").identity.workspace
    id = bench.fresh("sesn")
    with refused():
        await bench.operator.CreateSession(
            pb.CreateSessionRequest(session_id=id, workspace=workspace)
        )
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.other.GetSession(pb.GetSessionRequest(session_id=id))
    with refused():
        await bench.operator.ListSessions(pb.ListSessionsRequest(workspace=workspace))
