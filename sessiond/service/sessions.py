"""The Session service: each RPC checked, put to the rules or the readers, and answered.

What is overridden neither here nor in the other `service_` files the server answers NOT_BUILT.
"""

from collections.abc import AsyncIterator

from carpal.server import Context, caller
from carpal.v1 import session_pb2 as pb
from sessiond import wire
from sessiond.lane import Lane
from sessiond.rows import Group, Needs, SliceQuery
from sessiond.rules import reads, sessions
from sessiond.rules.append import append, needs_of
from sessiond.service.blobs import BlobService
from sessiond.service.documents import DocumentService
from sessiond.service.keeping import KeepingService, digest_of
from sessiond.store import Reader


class SessionService(KeepingService, BlobService, DocumentService):
    """Sessions and their logs; the rest is its base classes'."""

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
            request=digest_of(request),
        )
        needs = Needs(sessions=(new.session_id,), events=tuple(event.id for event in new.events))
        info = await self._change(lambda tx: sessions.create(tx, who, new), request, needs)
        return pb.CreateSessionResponse(session=info)

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Context
    ) -> pb.GetSessionResponse:
        """See session.proto."""
        who = caller(context)

        def read(reader: Reader) -> pb.GetSessionResponse:
            with reader.snapshot():
                session, lease = reads.find(reader, who, request.session_id)
                response = pb.GetSessionResponse(session=self._info(session, lease))
                if request.first_events:
                    query = SliceQuery(limit=wire.limit(request.first_events))
                    found = reader.slice(session, query)
                    response.events.extend(wire.event(row) for row in found.events)
                return response

        response = await self._parts.readers.run(read)
        if request.sign_head:
            signed = self._tickets.sign_head(response.session, self._parts.clock.wall())
            response.signed_head.CopyFrom(signed)
        return response

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        """See session.proto."""
        sessions.check_map("labels", request.labels)
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
            request=digest_of(request),
            wake=request.wake,
        )
        needs = Needs(sessions=(request.session_id,), events=(request.event_id,))
        info = await self._change(lambda tx: sessions.update(tx, who, update), request, needs)
        return pb.UpdateSessionResponse(session=info)

    async def ArchiveSession(
        self, request: pb.ArchiveSessionRequest, context: Context
    ) -> pb.ArchiveSessionResponse:
        """See session.proto."""
        who = caller(context)
        needs = Needs(sessions=(request.session_id,))
        info = await self._change(
            lambda tx: sessions.archive(tx, who, request.session_id), request, needs
        )
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
            lambda tx: append(tx, who, group), request.ByteSize(), needs_of([group])
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
