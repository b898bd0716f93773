"""Following a session: its log, and what its driver does right now.

The log is the truth: its tail resumes from the last position for as long as
sessiond comes back in time. Beside it, what the driving brain says it does is
watched, best effort, from whichever brain holds the session's lease.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

import grpc

from carpal.backoff import Backoff
from carpal.client import from_rpc, rpc_errors
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.operator.connection import Operator
from carpal.operator.overview import is_live
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2, session_pb2, types_pb2

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds without an answer from sessiond after which following gives up."""
NO_DRIVER_SECONDS = 5.0
"""Seconds without a driver after which the viewer is told."""


class Viewer(Protocol):
    """Whoever looks on. Its methods are called one at a time, on the event loop."""

    def event(self, event: types_pb2.Event) -> None:
        """The next event of the log; none is missed and none comes twice."""

    def moment(self, moment: orchestrator_pb2.WatchResponse) -> None:
        """A delta, a piece of output or a phase; any may be missed."""

    def watching(self) -> None:
        """A stream of moments begins; what it should follow on may have been missed."""

    def notice(self, text: str) -> None:
        """Something about following itself that a person should know."""


async def follow(
    operator: Operator,
    session_id: str,
    viewer: Viewer,
    *,
    until: Callable[[types_pb2.Event], bool],
    after: int = 0,
    live: bool = True,
    patience: float = PATIENCE,
) -> types_pb2.Event:
    """Show the log from `after` on until an event satisfies `until`; return that event.

    With `live`, moments too. Raises UNREACHABLE when sessiond does not answer
    for `patience` seconds, and whatever else sessiond refuses.
    """
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(operator, session_id, viewer)) if live else None
        try:
            async with aclosing(_tail(operator, session_id, viewer, after, patience)) as events:
                async for event in events:
                    viewer.event(event)
                    if until(event):
                        return event
        finally:
            if watching:
                watching.cancel()
    raise AssertionError("a tail has no end")


async def until_processed(
    operator: Operator, session_id: str, position: int
) -> types_pb2.SessionInfo:
    """Wait until nobody drives the session and all up to `position` is processed, or it is parked.

    An interrupt is processed without an event of its own when nothing ran.
    """
    async with aclosing(_drivers(operator, session_id)) as drivers:
        async for driver in drivers:
            if driver is None:
                request = session_pb2.GetSessionRequest(session_id=session_id)
                with rpc_errors(operator.sessiond):
                    answer = await operator.sessions.GetSession(request)
                if answer.session.processed >= position or answer.session.parked_reason:
                    return answer.session
    raise refuse(Reason.UNAVAILABLE, f"{operator.sessiond} does not tell who drives {session_id}")


async def _tail(
    operator: Operator, session_id: str, viewer: Viewer, after: int, patience: float
) -> AsyncGenerator[types_pb2.Event, None]:
    """The log after a position, for ever, across cuts."""
    loop = asyncio.get_running_loop()
    backoff = Backoff(first=0.2, cap=2.0)
    cut_since: float | None = None
    while True:
        cursor = types_pb2.TailCursor(session_id=session_id, after=after)
        call = operator.sessions.TailEvents(session_pb2.TailEventsRequest(cursors=[cursor]))
        try:
            async for answer in call:
                if cut_since is not None:
                    viewer.notice(f"{operator.sessiond} answers again")
                    cut_since = None
                backoff.works()
                for event in answer.events:
                    if event.position > after:
                        after = event.position
                        yield event
            failure = f"{operator.sessiond} ended the stream"
        except grpc.RpcError as error:
            refused = from_rpc(error, operator.sessiond)
            if not isinstance(refused, Unreachable):
                raise refused from None
            failure = refused.message
        finally:
            call.cancel()
        if cut_since is None:
            cut_since = loop.time()
            viewer.notice(f"{failure}; trying again for {patience:.0f} s")
        if loop.time() - cut_since >= patience:
            raise refuse(Reason.UNREACHABLE, failure, action=f"the session {session_id} goes on")
        await asyncio.sleep(backoff.next())


async def _watch(operator: Operator, session_id: str, viewer: Viewer) -> None:
    """Watch at the driving brain, and at the next one when the lease moves."""
    waiting = asyncio.get_running_loop().call_later(
        NO_DRIVER_SECONDS, viewer.notice, "no brain drives this session yet; it waits in the log"
    )
    try:
        async with (
            asyncio.TaskGroup() as group,
            aclosing(_drivers(operator, session_id)) as drivers,
        ):
            watching: asyncio.Task[None] | None = None
            seen: tuple[int, str] | None = None
            async for lease in drivers:
                driver = (lease.epoch, lease.address) if lease else None
                if driver == seen:
                    continue
                seen = driver
                if watching:
                    watching.cancel()
                    watching = None
                if lease:
                    waiting.cancel()
                    watching = group.create_task(
                        _watch_at(operator, session_id, lease.address, viewer)
                    )
    finally:
        waiting.cancel()


async def _drivers(
    operator: Operator, session_id: str
) -> AsyncGenerator[types_pb2.LeaseInfo | None, None]:
    """The session's live lease, or None, now and at each change, across cuts.

    Ends if sessiond refuses to tell.
    """
    resource = f"session/{session_id}"
    backoff = Backoff(first=0.2, cap=2.0)
    while True:
        call = operator.sessions.WatchLeases(session_pb2.WatchLeasesRequest(prefix=resource))
        try:
            async for answer in call:
                backoff.works()
                ours = [lease for lease in answer.leases if lease.resource == resource]
                for lease in ours:
                    yield lease if is_live(lease) else None
                if answer.snapshot and not ours:
                    yield None
        except grpc.RpcError as error:
            if _is_final(from_rpc(error, operator.sessiond)):
                return
        finally:
            call.cancel()
        await asyncio.sleep(backoff.next())


async def _watch_at(operator: Operator, session_id: str, address: str, viewer: Viewer) -> None:
    """Moments from one brain until it refuses, or another drives and this is cancelled."""
    backoff = Backoff(first=0.2, cap=2.0)
    async with operator.brain(address) as brain:
        while True:
            viewer.watching()
            call = brain.Watch(orchestrator_pb2.WatchRequest(session_id=session_id))
            try:
                async for moment in call:
                    backoff.works()
                    viewer.moment(moment)
            except grpc.RpcError as error:
                if _is_final(from_rpc(error, f"brain at {address}")):
                    return
            finally:
                call.cancel()
            await asyncio.sleep(backoff.next())


def _is_final(failure: CarpalError) -> bool:
    """Whether trying again is useless; either way the log goes on without live output."""
    _log.debug("no live output", extra={"problem": failure.message})
    return not isinstance(failure, Unreachable)
