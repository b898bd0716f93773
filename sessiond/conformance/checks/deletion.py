"""Deleting leaves a tombstone, and what forks need."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from carpal.client import from_rpc
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import PEER, equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.checks.chain import verify
from sessiond.conformance.checks.forks import fork
from sessiond.conformance.group import Group

group = Group("deletion")


async def delete(bench: Bench, session_id: str) -> None:
    """Delete a session, as the operator."""
    await bench.operator.DeleteSession(pb.DeleteSessionRequest(session_id=session_id))


@group
async def gone(bench: Bench) -> None:
    """A deleted session is there for nobody: not read, listed, appended to or driven."""
    made = await bench.session(bench.events(2), wake=True)
    id = made.session_id
    await delete(bench, id)
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetSession(pb.GetSessionRequest(session_id=id))
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetEvents(pb.GetEventsRequest(session_id=id))
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.emit(id, bench.event())
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.lease(id)
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=id))
    with refused(Reason.SESSION_NOT_FOUND):
        await fork(bench, id, 1)
    request = pb.ListSessionsRequest(include_archived=True, limit=1000)
    listed = {one.session_id for one in (await bench.operator.ListSessions(request)).sessions}
    must(id not in listed, "it is listed")


@group
async def deleted_again(bench: Bench) -> None:
    """Deleting what was deleted succeeds; what never was is SESSION_NOT_FOUND."""
    made = await bench.session()
    await delete(bench, made.session_id)
    await delete(bench, made.session_id)
    with refused(Reason.SESSION_NOT_FOUND):
        await delete(bench, bench.fresh("sesn"))
    mine = await bench.session()
    with refused(Reason.SESSION_NOT_FOUND):
        request = pb.DeleteSessionRequest(session_id=mine.session_id)
        await bench.other.DeleteSession(request)


@group
async def id_is_spent(bench: Bench) -> None:
    """A deleted session's id is never used again: it is ID_REUSED, for the same content too."""
    request = pb.CreateSessionRequest(session_id=bench.fresh("sesn"), events=bench.events(1))
    await bench.operator.CreateSession(request)
    await delete(bench, request.session_id)
    with refused(Reason.ID_REUSED):
        await bench.operator.CreateSession(request)
    source = await bench.session(bench.events(1))
    with refused(Reason.ID_REUSED):
        await bench.operator.ForkSession(
            pb.ForkSessionRequest(
                source_session_id=source.session_id, position=1, session_id=request.session_id
            )
        )


@group
async def while_driven(bench: Bench) -> None:
    """A session that a brain drives is not deleted until the lease ends."""
    made = await bench.session()
    lease = (await bench.lease(made.session_id)).lease
    with refused(Reason.LEASE_HELD):
        await delete(bench, made.session_id)
    await bench.release(made.session_id, lease.epoch)
    await delete(bench, made.session_id)


@group
async def archived_too(bench: Bench) -> None:
    """An archived session can be deleted."""
    made = await bench.session()
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=made.session_id))
    await delete(bench, made.session_id)
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.info(made.session_id)


@group
async def forks_live_on(bench: Bench) -> None:
    """Forks of a deleted session still read their prefix, and their chain holds."""
    made = await bench.session(bench.events(4))
    before = await bench.log(made.session_id)
    forked = await fork(bench, made.session_id, 3)
    further = await fork(bench, forked.session_id, 2)
    await bench.emit(forked.session_id, bench.event())
    await delete(bench, made.session_id)
    equal("the prefix", (await verify(bench, forked.session_id))[:3], before[:3])
    await delete(bench, forked.session_id)
    equal("the fork's fork", await verify(bench, further.session_id), before[:2])
    await bench.emit(further.session_id, bench.event())
    equal("the log's length", len(await verify(bench, further.session_id)), 3)


@group
async def not_offered(bench: Bench) -> None:
    """A deleted session is not offered, although a wake was left."""
    made = await bench.session(bench.events(1), wake=True)
    await delete(bench, made.session_id)
    marker = await bench.session(bench.events(1), wake=True)
    offers = bench.runnable(bench.workspace)
    await offers.until(marker.session_id)
    must(made.session_id not in offers.seen, "it is offered")
    await delete(bench, marker.session_id)


@group
async def held_by_retention(bench: Bench) -> None:
    """While retention/default holds the workspace, deleting is SESSION_HELD."""
    # Of the other workspace, where no other check deletes.
    request = pb.CreateSessionRequest(session_id=bench.fresh("sesn"), events=bench.events(1))
    await bench.other.CreateSession(request)
    doomed = pb.DeleteSessionRequest(session_id=request.session_id)
    async with _retention(bench, hold=True):
        with refused(Reason.SESSION_HELD):
            await bench.other.DeleteSession(doomed)
        equal("the log's length", len(await bench.log(doomed.session_id, bench.other)), 1)
    async with _retention(bench, hold=False):
        await bench.other.DeleteSession(doomed)


@asynccontextmanager
async def _retention(bench: Bench, *, hold: bool) -> AsyncIterator[None]:
    """The other workspace's retention with this hold; afterwards as it was, or empty."""
    before = (await _newest(bench)).data or b"{}"
    await _put(bench, json.dumps({**json.loads(before), "hold": hold}).encode())
    try:
        yield
    finally:
        await _put(bench, before)


async def _newest(bench: Bench) -> types_pb2.DocumentInfo:
    """The workspace's retention; of version 0 when there is none."""
    request = pb.GetDocumentRequest(kind="retention", name="default")
    try:
        return (await bench.other.GetDocument(request)).document
    except grpc.RpcError as error:
        if from_rpc(error, PEER).reason is not Reason.DOCUMENT_NOT_FOUND:
            raise
        return types_pb2.DocumentInfo()


async def _put(bench: Bench, data: bytes) -> None:
    version = (await _newest(bench)).version
    request = pb.PutDocumentRequest(
        kind="retention", name="default", expected_version=version, data=data
    )
    await bench.other.PutDocument(request)
