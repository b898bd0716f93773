"""The Session service: each RPC checked, put to the rules or the readers, and answered.

What is not overridden here or in `service_leases` the server answers NOT_BUILT.
"""

from collections.abc import AsyncIterator, Callable
from hashlib import sha256

from google.protobuf.message import Message

from carpal.errors import refuse
from carpal.server import Context, caller
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from sessiond import reads, sessions, wire
from sessiond.append import append
from sessiond.lane import Lane
from sessiond.rows import Group, LeaseRow, SessionRow, SliceQuery
from sessiond.service_leases import LeaseService
from sessiond.store import Reader, Transaction


class SessionService(LeaseService):
    """Sessions and their logs; leases and watches are its base class's."""

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: Context
    ) -> pb.CreateSessionResponse:
        """See session.proto."""
        who = caller(context)
        request.workspace = sessions.own_workspace(who, request.workspace)
        new = sessions.NewSession(
            session_id=request.session_id,
            workspace=request.workspace,
            title=request.title,
            metadata=dict(request.metadata),
            labels=dict(request.labels),
            events=wire.new_events(request.events),
            wake=request.wake,
            request=_digest(request),
        )
        info = await self._change(lambda tx: sessions.create(tx, who, new), request)
        return pb.CreateSessionResponse(session=info)

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Context
    ) -> pb.GetSessionResponse:
        """See session.proto."""
        who = caller(context)

        def read(reader: Reader) -> pb.GetSessionResponse:
            session, lease = reads.find(reader, who, request.session_id)
            response = pb.GetSessionResponse(session=self._info(session, lease))
            if request.first_events:
                query = SliceQuery(high=session.head + 1, limit=wire.limit(request.first_events))
                found = reader.slice(session.session_id, query)
                response.events.extend(wire.event(row) for row in (found.events if found else ()))
            return response

        return await self._parts.readers.run(read)

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        """See session.proto."""
        if request.labels:
            raise refuse(Reason.NOT_BUILT, "listing by labels is not built yet")
        who = caller(context)
        workspace = sessions.own_workspace(who, request.workspace)
        rows, token = await self._parts.readers.run(
            lambda reader: reads.page_of(reader, workspace, request)
        )
        infos = [self._info(session, lease) for session, lease in rows]
        return pb.ListSessionsResponse(sessions=infos, next_page_token=token)

    async def UpdateSession(
        self, request: pb.UpdateSessionRequest, context: Context
    ) -> pb.UpdateSessionResponse:
        """See session.proto."""
        who = caller(context)
        update = sessions.Update(
            session_id=request.session_id,
            event_id=request.event_id,
            title=request.title if request.HasField("title") else None,
            metadata=dict(request.metadata),
            labels=dict(request.labels),
            data=request.data,
            request=_digest(request),
        )
        info = await self._change(lambda tx: sessions.update(tx, who, update), request)
        return pb.UpdateSessionResponse(session=info)

    async def ArchiveSession(
        self, request: pb.ArchiveSessionRequest, context: Context
    ) -> pb.ArchiveSessionResponse:
        """See session.proto."""
        who = caller(context)
        info = await self._change(lambda tx: sessions.archive(tx, who, request.session_id), request)
        return pb.ArchiveSessionResponse(session=info)

    async def EmitEvent(
        self, request: pb.EmitEventRequest, context: Context
    ) -> pb.EmitEventResponse:
        """See session.proto."""
        who = caller(context)
        group = Group(
            request.session_id,
            (wire.new_event(request.event),),
            request.epoch if request.HasField("epoch") else None,
            request.wake,
        )
        appended = await self._parts.writer.run(
            lambda tx: append(tx, who, group), request.ByteSize()
        )
        return pb.EmitEventResponse(event=wire.event(appended.first))

    async def Append(
        self, request_iterator: AsyncIterator[pb.AppendRequest], context: Context
    ) -> AsyncIterator[pb.AppendResponse]:
        """See session.proto."""
        lane = Lane(self._parts.writer, caller(context))
        self._lanes.add(lane)
        try:
            async for response in lane.serve(request_iterator):
                yield response
        finally:
            self._lanes.discard(lane)

    async def GetEvents(
        self, request: pb.GetEventsRequest, context: Context
    ) -> pb.GetEventsResponse:
        """See session.proto."""
        who = caller(context)

        def read(reader: Reader) -> pb.GetEventsResponse:
            found = reads.slice_of(reader, who, request)
            events = [wire.event(row) for row in found.events]
            return pb.GetEventsResponse(events=events, head=found.head, more=found.more)

        return await self._parts.readers.run(read)

    async def TailEvents(
        self, request: pb.TailEventsRequest, context: Context
    ) -> AsyncIterator[pb.TailEventsResponse]:
        """See session.proto."""
        async for response in self._parts.tails.tail(caller(context), request):
            yield response

    async def _change(
        self, change: Callable[[Transaction], SessionRow], request: Message
    ) -> types_pb2.SessionInfo:
        """Run a change and describe the session as of its transaction."""

        def run(tx: Transaction) -> tuple[SessionRow, LeaseRow | None]:
            session = change(tx)
            return session, tx.lease(f"session/{session.session_id}")

        return self._info(*await self._parts.writer.run(run, request.ByteSize()))


def _digest(request: Message) -> bytes:
    """What a repeat of a request must equal."""
    return sha256(request.SerializeToString(deterministic=True)).digest()
