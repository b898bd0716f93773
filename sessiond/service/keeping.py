"""The Session service's forks, imports, redactions and deletions."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256

from google.protobuf.message import Message

from carpal.errors import invalid
from carpal.identity import Identity
from carpal.server import Context, caller
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from sessiond import wire
from sessiond.rows import LeaseRow, Needs, SessionRow
from sessiond.rules.append import GROUP_EVENTS
from sessiond.rules.forks import NewFork, fork
from sessiond.rules.imports import NewImport, begin, check_whole, take
from sessiond.rules.redaction import redact
from sessiond.rules.removal import delete, needs_of
from sessiond.service.leases import LeaseService
from sessiond.store import Transaction

_log = logging.getLogger(__name__)


class KeepingService(LeaseService):
    """What becomes of a session and its log."""

    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Context
    ) -> pb.ForkSessionResponse:
        """See session.proto."""
        who = caller(context)
        new = NewFork(
            source_id=request.source_session_id,
            position=request.position,
            session_id=request.session_id,
            title=request.title,
            request=digest_of(request),
        )
        needs = Needs(sessions=(new.source_id, new.session_id))
        info = await self._change(lambda tx: fork(tx, who, new), request, needs)
        return pb.ForkSessionResponse(session=info)

    async def DeleteSession(
        self, request: pb.DeleteSessionRequest, context: Context
    ) -> pb.DeleteSessionResponse:
        """See session.proto."""
        who = caller(context)
        await self._parts.writer.run(
            lambda tx: delete(tx, who, request.session_id),
            request.ByteSize(),
            needs_of([request.session_id], who.workspace),
        )
        _log.info("session deleted", extra={"session_id": request.session_id, "by": who.uri})
        return pb.DeleteSessionResponse()

    async def RedactEvent(
        self, request: pb.RedactEventRequest, context: Context
    ) -> pb.RedactEventResponse:
        """See session.proto."""
        who = caller(context)
        event = await self._parts.writer.run(
            lambda tx: redact(tx, who, request.session_id, request.position, request.reason),
            request.ByteSize(),
            Needs(sessions=(request.session_id,)),
        )
        _log.info(
            "event redacted",
            extra={
                "session_id": request.session_id,
                "position": request.position,
                "by": who.uri,
            },
        )
        return pb.RedactEventResponse(event=wire.event(event))

    async def ImportSession(
        self, request_iterator: AsyncIterator[pb.ImportSessionRequest], context: Context
    ) -> pb.ImportSessionResponse:
        """See session.proto."""
        who = caller(context)
        new: NewImport | None = None
        session: SessionRow | None = None
        async for request in request_iterator:
            if new is None:
                new = self._import_of(who, request)
                session = await self._begin(who, new, request.ByteSize())
            elif request.HasField("session"):
                raise invalid("session", "belongs in the first message alone")
            for start in range(0, len(request.events), GROUP_EVENTS):
                events = request.events[start : start + GROUP_EVENTS]
                session = await self._take(new, events)
        if new is None or session is None:
            raise invalid("session", "must be in the first message")
        check_whole(session, new)
        return pb.ImportSessionResponse(session=self._info(session, None))

    def _import_of(self, who: Identity, request: pb.ImportSessionRequest) -> NewImport:
        """What the first message asks for; the workspace is the caller's, whatever it was."""
        if not request.HasField("session"):
            raise invalid("session", "must be in the first message")
        info = request.session
        created = self._parts.clock.wall()
        if info.HasField("created"):
            created = wire.time_of(info.created, "session.created")
        chain_id = info.chain_id or info.session_id
        chain = f"{chain_id}\0{info.head.position}\0".encode() + info.head.hash
        return NewImport(
            session_id=info.session_id,
            workspace=who.workspace,
            title=info.title,
            metadata=dict(info.metadata),
            labels=dict(info.labels),
            created=created,
            chain_id=chain_id,
            head=info.head.position,
            hash=info.head.hash,
            request=sha256(b"import\0" + chain).digest(),
        )

    async def _begin(self, who: Identity, new: NewImport, size: int) -> SessionRow:
        needs = Needs(sessions=(new.session_id,))
        return await self._parts.writer.run(lambda tx: begin(tx, who, new), size, needs)

    async def _take(self, new: NewImport, messages: Sequence[types_pb2.Event]) -> SessionRow:
        events = [wire.event_row(message) for message in messages]
        needs = Needs(sessions=(new.session_id,), events=tuple([event.id for event in events]))
        size = sum(message.ByteSize() for message in messages)
        return await self._parts.writer.run(lambda tx: take(tx, new, events), size, needs)

    async def _change(
        self, change: Callable[[Transaction], SessionRow], request: Message, needs: Needs
    ) -> types_pb2.SessionInfo:
        """Run a change and describe the session as of its transaction."""

        def run(tx: Transaction) -> tuple[SessionRow, LeaseRow | None]:
            session = change(tx)
            return session, tx.lease(session.resource)

        return self._info(*await self._parts.writer.run(run, request.ByteSize(), needs))


def digest_of(request: Message) -> bytes:
    """What a repeat of a request must equal."""
    return sha256(request.SerializeToString(deterministic=True)).digest()
