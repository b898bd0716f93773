"""What a check works with: callers, fresh ids, and the few calls that most checks make."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from carpal.ids import new_id
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import Skipped, must
from sessiond.conformance.callers import Caller
from sessiond.conformance.streams import Lane, LeaseWatch, Offers, Reading, Tail, is_live

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

TERM_SHORT = 0.5
"""Seconds; the shortest term there is, so that an expiry can be awaited."""
SLACK = 2.0
"""Seconds that something due may be late, on a machine of scale 1."""


class _Cancellable(Protocol):
    def cancel(self) -> object: ...


S = TypeVar("S", bound=_Cancellable)


class Bench:
    """One check's own; `close` hangs up what it left open."""

    def __init__(self, callers: dict[str, Caller], scale: float = 1.0) -> None:
        self._callers = callers
        self.slack = SLACK * scale
        self._open: list[_Cancellable] = []

    def caller(self, seat: str) -> Caller:
        """Whoever sits there, or Skipped."""
        found = self._callers.get(seat)
        if found is None:
            raise Skipped(f"needs an identity in {seat}/")
        return found

    @property
    def brain(self) -> "SessionAsyncStub":
        """A brain."""
        return self.caller("brain").stub

    @property
    def brain2(self) -> "SessionAsyncStub":
        """Another brain."""
        return self.caller("brain-2").stub

    @property
    def operator(self) -> "SessionAsyncStub":
        """The operator of `workspace`."""
        return self.caller("operator").stub

    @property
    def other(self) -> "SessionAsyncStub":
        """An operator of another workspace."""
        return self.caller("other-operator").stub

    @property
    def workspace(self) -> str:
        """The operator's."""
        return self.caller("operator").identity.workspace

    def fresh(self, prefix: str = "check") -> str:
        """An id or name nobody has used: letters, digits and one `-`."""
        return f"{prefix}-{new_id('x').removeprefix('x_')}"

    def event(
        self,
        type: str = "user.message",
        data: bytes = b"{}",
        *,
        id: str | None = None,
        must_understand: bool = False,
    ) -> types_pb2.NewEvent:
        """An event to append, of a fresh id."""
        return types_pb2.NewEvent(
            id=self.fresh("sevt") if id is None else id,
            type=type,
            data=data,
            must_understand=must_understand,
        )

    def events(self, count: int, type: str = "user.message") -> list[types_pb2.NewEvent]:
        """Several events, each with data of its own."""
        return [self.event(type, b'{"n":%d}' % number) for number in range(count)]

    async def session(
        self,
        events: Iterable[types_pb2.NewEvent] = (),
        *,
        wake: bool = False,
        workspace: str | None = None,
        **fields: str,
    ) -> types_pb2.SessionInfo:
        """A new session: the operator's, or made by the brain in the workspace named."""
        request = pb.CreateSessionRequest(
            session_id=self.fresh("sesn"),
            workspace=workspace or "",
            events=events,
            wake=wake,
            title=fields.get("title", ""),
        )
        stub = self.operator if workspace is None else self.brain
        return (await stub.CreateSession(request)).session

    async def info(self, session_id: str) -> types_pb2.SessionInfo:
        """A session as it is now, as the brain sees it."""
        return (await self.brain.GetSession(pb.GetSessionRequest(session_id=session_id))).session

    async def log(
        self, session_id: str, stub: "SessionAsyncStub | None" = None
    ) -> list[types_pb2.Event]:
        """All of a session's events, page by page; gapless, or Failed."""
        log: list[types_pb2.Event] = []
        while True:
            request = pb.GetEventsRequest(session_id=session_id, after=len(log), limit=1000)
            answer = await (stub or self.brain).GetEvents(request)
            log += answer.events
            must(bool(answer.events) or not answer.more, "an empty slice says there is more")
            if not answer.more:
                break
        positions = [event.position for event in log]
        must(positions == list(range(1, len(log) + 1)), f"the log has gaps: {positions[:50]}")
        return log

    async def emit(
        self,
        session_id: str,
        event: types_pb2.NewEvent,
        *,
        stub: "SessionAsyncStub | None" = None,
        epoch: int | None = None,
        wake: bool = False,
    ) -> types_pb2.Event:
        """Append one event, as the brain unless told otherwise."""
        request = pb.EmitEventRequest(session_id=session_id, event=event, epoch=epoch, wake=wake)
        return (await (stub or self.brain).EmitEvent(request)).event

    async def lease(
        self,
        session_id: str,
        *,
        stub: "SessionAsyncStub | None" = None,
        term: float | None = None,
    ) -> pb.AcquireLeaseResponse:
        """Acquire a session's lease, as the brain unless told otherwise."""
        return await self.acquire(f"session/{session_id}", stub=stub, term=term)

    async def acquire(
        self,
        resource: str,
        *,
        stub: "SessionAsyncStub | None" = None,
        term: float | None = None,
        takeover: bool = False,
        workspace: str = "",
    ) -> pb.AcquireLeaseResponse:
        """Acquire a lease, as the brain unless told otherwise; `term` in seconds."""
        request = pb.AcquireLeaseRequest(
            resource=resource, address="127.0.0.1:1", takeover=takeover, workspace=workspace
        )
        if term is not None:
            request.term.FromTimedelta(timedelta(seconds=term))
        return await (stub or self.brain).AcquireLease(request)

    async def release(
        self,
        session_id: str,
        epoch: int,
        *,
        stub: "SessionAsyncStub | None" = None,
        processed: int = 0,
        failure: str = "",
        failed: tuple[str, str] = ("", ""),
    ) -> types_pb2.SessionInfo:
        """Release a session's lease; `failed` is the layer that did, and the cause."""
        request = pb.ReleaseLeaseRequest(
            resource=f"session/{session_id}",
            epoch=epoch,
            processed=processed,
            failure=failure,
            failure_layer=failed[0],
            failure_cause=failed[1],
        )
        return (await (stub or self.brain).ReleaseLease(request)).session

    async def expired(self, session_id: str) -> None:
        """Wait until a session's lease, which nobody renews, has expired."""
        # Asked, not watched: a watch through another process may not know of the lease yet.
        while is_live((await self.info(session_id)).lease):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def lane(self, stub: "SessionAsyncStub | None" = None) -> Lane:
        """An Append stream, the brain's unless told otherwise."""
        return self._keep(Lane((stub or self.brain).Append()))

    def tail(
        self,
        cursors: dict[str, int],
        *,
        stub: "SessionAsyncStub | None" = None,
        types: Iterable[str] = (),
    ) -> Tail:
        """Tail sessions, each from above a position."""
        request = pb.TailEventsRequest(
            cursors=[
                types_pb2.TailCursor(session_id=session_id, after=after)
                for session_id, after in cursors.items()
            ],
            types=types,
        )
        reading = Reading((stub or self.brain).TailEvents(request))
        return self._keep(Tail(reading, cursors, whole=not request.types))

    def runnable(self, *workspaces: str) -> Offers:
        """Watch what is runnable."""
        request = pb.WatchRunnableRequest(workspaces=workspaces)
        return Offers(self._keep(Reading(self.brain.WatchRunnable(request))))

    def leases(self, prefix: str, stub: "SessionAsyncStub | None" = None) -> LeaseWatch:
        """Watch leases, as the brain unless told otherwise."""
        request = pb.WatchLeasesRequest(prefix=prefix)
        return LeaseWatch(self._keep(Reading((stub or self.brain).WatchLeases(request))))

    def now(self) -> float:
        """Seconds, for differences."""
        return asyncio.get_running_loop().time()

    def close(self) -> None:
        """Hang up whatever is open."""
        for stream in self._open:
            stream.cancel()

    def _keep(self, stream: S) -> S:
        self._open.append(stream)
        return stream
