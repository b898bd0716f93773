"""The Session service's leases and watches."""

import re
from collections.abc import AsyncIterator, Callable, Iterator

from carpal.errors import CarpalError, invalid, to_status
from carpal.identity import Identity
from carpal.server import Context, caller
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionServicer
from sessiond import wire
from sessiond.founding import Founding, founding
from sessiond.lane import Lane
from sessiond.parts import Parts
from sessiond.rows import EventRow, LeaseRow, Needs, SessionRow, SliceQuery
from sessiond.rules.append import may_see
from sessiond.rules.leases import KINDS, Wanted, parse
from sessiond.rules.runnable import Try
from sessiond.rules.sessions import check_map
from sessiond.store import Reader, Transaction
from sessiond.tickets import Tickets

_WORD = re.compile(r"[A-Za-z0-9_.-]{0,64}")

RENEWALS = 1000
"""Leases in one RenewLease."""
MERGED = 1000
"""Offers or lease changes in one message, at most."""
MESSAGE_BYTES = 1024 * 1024
"""Of leases in one message, at most."""
_FIRST = SliceQuery(low=0, high=2, limit=1)
FIRST_EVENTS, FIRST_BYTES = 200, 256 * 1024
"""Of a log, in the answer to whoever will drive its session."""


class LeaseService(SessionServicer):
    """The lease table, and what may be driven."""

    def __init__(self, parts: Parts, tickets: Tickets) -> None:
        self._parts = parts
        self._tickets = tickets
        self._lanes: set[Lane] = set()

    def close_streams(self) -> None:
        """The server stops: streams end, after what they took is committed."""
        for lane in self._lanes:
            lane.close()
        self._parts.close_streams()

    async def AcquireLease(
        self, request: pb.AcquireLeaseRequest, context: Context
    ) -> pb.AcquireLeaseResponse:
        """See session.proto."""
        who = caller(context)
        check_map("attributes", request.attributes)
        wanted = Wanted(
            resource=request.resource,
            address=request.address,
            term=wire.nanoseconds(request.term),
            takeover=request.takeover,
            workspace=request.workspace,
            attributes=dict(request.attributes),
        )
        held = await self._parts.writer.run(
            lambda tx: self._parts.rules.acquire(tx, who, wanted),
            request.ByteSize(),
            Needs(leases=(wanted.resource,)),
        )
        response = pb.AcquireLeaseResponse(
            lease=wire.lease_info(held.lease, self._parts.clock.steady())
        )
        made = Founding()
        wall = self._parts.clock.wall()
        if held.session is not None:
            response.session.CopyFrom(self._info(held.session, held.lease))
            after = request.events_after if request.HasField("events_after") else None
            made = await self._tell_log(held.session, after, response)
        response.ticket.CopyFrom(self._tickets.sign(held.lease, wall, made))
        return response

    async def RenewLease(
        self, request: pb.RenewLeaseRequest, context: Context
    ) -> pb.RenewLeaseResponse:
        """See session.proto."""
        who = caller(context)
        if len(request.leases) > RENEWALS:
            raise invalid("leases", f"at most {RENEWALS} in one call")

        def renew(tx: Transaction) -> list[LeaseRow | CarpalError]:
            results: list[LeaseRow | CarpalError] = []
            for ref in request.leases:
                try:
                    results.append(self._parts.rules.renew(tx, who, ref.resource, ref.epoch))
                except CarpalError as error:
                    results.append(error)
            return results

        needs = Needs(leases=tuple(ref.resource for ref in request.leases))
        results = await self._parts.writer.run(renew, request.ByteSize(), needs)
        answers = [
            self._renewed(ref.resource, result)
            for ref, result in zip(request.leases, results, strict=True)
        ]
        return pb.RenewLeaseResponse(leases=answers)

    async def ReleaseLease(
        self, request: pb.ReleaseLeaseRequest, context: Context
    ) -> pb.ReleaseLeaseResponse:
        """See session.proto."""
        who = caller(context)
        wake_at = wire.time_of(request.wake_at, "wake_at") if request.HasField("wake_at") else None
        for field in ("failure_layer", "failure_cause"):
            if not _WORD.fullmatch(getattr(request, field)):
                raise invalid(field, "must be of at most 64 letters, digits, '_', '.' and '-'")
        check_map("attributes", request.attributes)
        end = Try(
            request.processed,
            wake_at,
            request.failure,
            layer=request.failure_layer,
            cause=request.failure_cause,
        )
        said = dict(request.attributes)

        def release(tx: Transaction) -> tuple[SessionRow | None, LeaseRow | None]:
            session = self._parts.rules.release(
                tx, who, request.resource, request.epoch, end, attributes=said
            )
            return session, tx.lease(request.resource)

        session, lease = await self._parts.writer.run(
            release, request.ByteSize(), Needs(leases=(request.resource,))
        )
        if session is None:
            return pb.ReleaseLeaseResponse()
        return pb.ReleaseLeaseResponse(session=self._info(session, lease))

    async def WatchLeases(
        self, request: pb.WatchLeasesRequest, context: Context
    ) -> AsyncIterator[pb.WatchLeasesResponse]:
        """See session.proto."""
        who = caller(context)
        of_prefix = _under(request.prefix)
        await self._parts.up_to_date()  # what the snapshot lacks does not exist
        with self._parts.table.watch(
            lambda lease: of_prefix(lease.resource) and _may_watch(who, lease)
        ) as (live, changes):
            for message in self._messages(live, snapshot=True):
                yield message
            while True:
                changed = [lease for _, lease in await changes.take(MERGED)]
                for message in self._messages(changed, snapshot=False):
                    yield message

    async def WatchRunnable(
        self, request: pb.WatchRunnableRequest, context: Context
    ) -> AsyncIterator[pb.WatchRunnableResponse]:
        """See session.proto. The first message is empty when nothing is runnable."""
        await self._parts.up_to_date()
        with self._parts.board.watch(frozenset(request.workspaces)) as offers:
            yield _offered(offers.take_now(MERGED))
            while True:
                yield _offered(await offers.take(MERGED))

    async def _tell_log(
        self, session: SessionRow, above: int | None, response: pb.AcquireLeaseResponse
    ) -> Founding:
        """What the log has above a position, up to the session's head, if that is little.

        Nothing of it without a position. Gives what its first event says.
        """
        after = above or 0
        few = above is not None and after <= session.head <= after + FIRST_EVENTS
        query = SliceQuery(
            low=min(after, session.head),
            high=session.head + 1,
            limit=FIRST_EVENTS,
            max_bytes=FIRST_BYTES,
        )

        def read(reader: Reader) -> tuple[list[EventRow] | None, int, Founding]:
            with reader.snapshot():
                there = reader.session(session.session_id)
                if there is None:  # the lease is over by now, and it was deleted
                    return None, 0, Founding()
                found = reader.slice(there[0], query) if few else None
                redacted = 0 if above is None else reader.redacted(there[0], session.head)
                has_first = found is not None and after == 0
                first = found if has_first else reader.slice(there[0], _FIRST)
            made = founding(first.events[0]) if first and first.events else Founding()
            return None if found is None or found.more else found.events, redacted, made

        events, response.redacted, made = await self._parts.readers.run(read)
        if events is not None and sum(len(event.data) for event in events) <= FIRST_BYTES:
            response.events_whole = True
            response.events.extend([wire.event(event) for event in events])
        return made

    def _info(self, session: SessionRow, lease: LeaseRow | None) -> types_pb2.SessionInfo:
        return wire.session_info(session, lease, steady=self._parts.clock.steady())

    def _messages(
        self, leases: list[LeaseRow], *, snapshot: bool
    ) -> Iterator[pb.WatchLeasesResponse]:
        """The leases in messages that any client takes; one empty message for none."""
        message, size = pb.WatchLeasesResponse(snapshot=snapshot), 0
        for lease in leases:
            info = wire.lease_info(lease, self._parts.clock.steady())
            size += info.ByteSize()
            if message.leases and size > MESSAGE_BYTES:
                message.more = snapshot
                yield message
                message, size = pb.WatchLeasesResponse(snapshot=snapshot), info.ByteSize()
            message.leases.append(info)
        yield message

    def _renewed(self, resource: str, result: LeaseRow | CarpalError) -> types_pb2.RenewedLease:
        if isinstance(result, CarpalError):
            return types_pb2.RenewedLease(resource=resource, status=to_status(result))
        left = wire.duration(result.expires - self._parts.clock.steady())
        return types_pb2.RenewedLease(resource=resource, expires_in=left)


def _may_watch(who: Identity, lease: LeaseRow) -> bool:
    """A lease of no workspace is a brain's: it serves them all, and all may find it."""
    return not lease.workspace or may_see(who, lease.workspace)


def _under(prefix: str) -> Callable[[str], bool]:
    """Whether a resource is meant by a prefix: a whole kind, or the one resource."""
    if prefix in {f"{kind}/" for kind in KINDS}:
        return lambda resource: resource.startswith(prefix)
    try:
        parse(prefix)
    except CarpalError:
        raise invalid("prefix", "must be session/, brain/, daemon/, or one resource") from None
    return lambda resource: resource == prefix


def _offered(offers: list[tuple[str, SessionRow]]) -> pb.WatchRunnableResponse:
    return pb.WatchRunnableResponse(
        sessions=[
            types_pb2.RunnableSession(
                session_id=session_id,
                workspace=session.workspace,
                wake=session.wake,
                processed=session.processed,
                attempts=session.attempts,
            )
            for session_id, session in offers
        ]
    )
