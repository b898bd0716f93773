"""People in hands, as a brain lets them in: which hand they mean, and the way to it.

The brain that has the daemon's link writes in the log that they came and left,
whichever brain they asked: one hop away from it at most.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple, Protocol, TypeVar

import grpc

from brain.daemons.diary import Diary
from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import DAEMON_KEY, Peers
from brain.daemons.meeting import Meeting, Passage
from carpal.client import from_rpc, held, rpc_errors
from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity
from carpal.ids import check_id, new_id
from carpal.json_in import read_object
from carpal.status import Reason
from carpal.v1 import hand_pb2, hand_pb2_grpc, session_pb2, session_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

T = TypeVar("T")

_STORE_LIMIT = 10.0
"""Seconds sessiond has to answer."""
_OPENING_LIMIT = 10.0
"""Seconds for the first message to come."""
_TYPES = ("hand.provisioned", "hand.lost", "hand.released")
_EVENTS = 1_000
"""The newest events of hands in which one is looked for."""


class Ways(Protocol):
    """Both ways of one tunnel."""

    back: Passage[hand_pb2.TunnelResponse]
    out: Passage[hand_pb2.TunnelRequest]


class Found(NamedTuple):
    """A session's live hand, as its log has it."""

    hand_id: str
    name: str
    daemon: str


class People:
    """Lets people into hands of daemons linked here, and of those at other brains."""

    def __init__(
        self,
        sessions: "session_pb2_grpc.SessionAsyncStub",
        fleet: Fleet,
        diary: Diary,
        peers: Peers,
    ) -> None:
        self._sessions = sessions
        self._fleet = fleet
        self._diary = diary
        self._peers = peers

    async def enter(
        self, asked: pb.EnterOpen, requests: AsyncIterator[pb.EnterRequest], who: Identity
    ) -> AsyncGenerator[pb.EnterResponse, None]:
        """Serve a person who may see the session, until they left or were cut off."""
        hand = await self._hand(asked.session_id, asked.hand)
        opening = hand_pb2.TunnelOpen(
            hand_id=hand.hand_id,
            operator=who.uri,
            kind=asked.kind,
            options=asked.options,
            session_id=asked.session_id,
            workspace=who.workspace,
            tunnel_id=new_id("tunl"),
            take=asked.take,
            hand=hand.name,
            within=asked.within,
        )
        async with (
            self._way(opening, hand.daemon, who) as ways,
            aclosing(passed(ways, _tunnelled(requests))) as came,
        ):
            async for said in came:
                if said.HasField("opened"):
                    opened = pb.EnterOpened(
                        tunnel_id=opening.tunnel_id,
                        hand_id=hand.hand_id,
                        hand=hand.name,
                        daemon_id=hand.daemon,
                        running_call_ids=said.opened.running_call_ids,
                    )
                    yield pb.EnterResponse(opened=opened)
                else:
                    yield pb.EnterResponse(tunnel=said)

    @asynccontextmanager
    async def here(
        self, opening: hand_pb2.TunnelOpen, daemon: str, principal: str
    ) -> AsyncIterator[Meeting]:
        """Into a hand of a daemon linked at this very brain; its log has it first.

        At the end of the block they are out, and the log is told.
        """
        link = self._fleet.links.get(daemon)
        if link is None or not link.open or link.identity.workspace != opening.workspace:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon} is not linked here")
        async with link.tunnel(opening, principal) as meeting:
            logged = not opening.within  # a forward's connections are the forward's
            if logged:
                await self._diary.entered(opening, daemon)
            try:
                await meeting.out.put(hand_pb2.TunnelRequest(open=opening))
                yield meeting
            finally:
                if logged:
                    self._diary.left(opening, daemon, meeting.because, meeting.layer)

    @asynccontextmanager
    async def _way(
        self, opening: hand_pb2.TunnelOpen, daemon: str, who: Identity
    ) -> AsyncIterator[Ways]:
        if self._fleet.has(daemon):
            async with self.here(opening, daemon, who.uri) as meeting:
                yield meeting
            return
        row = self._fleet.directory.daemons.get(daemon)
        if row is None or not row.live or row.lease.workspace != who.workspace:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon} is not linked anywhere")
        stub = await self._peers.hands(row.lease.address)
        async with _relayed(stub, opening, daemon, f"the brain at {row.lease.address}") as ways:
            yield ways

    async def _hand(self, session_id: str, wanted: str) -> Found:
        request = session_pb2.GetEventsRequest(
            session_id=check_id(session_id, "session_id"),
            order=types_pb2.EVENT_ORDER_NEWEST_FIRST,
            types=_TYPES,
            limit=_EVENTS,
        )
        with rpc_errors("sessiond"):
            answer = await self._sessions.GetEvents(request, timeout=_STORE_LIMIT)
        return choose(list(answer.events), wanted)


def choose(events: list[types_pb2.Event], wanted: str) -> Found:
    """The live hand of that name or id, or the only one there is; `events` are newest first.

    HAND_NOT_FOUND says which there are.
    """
    gone: set[str] = set()
    live: dict[str, Found] = {}
    for event in events:
        try:
            data = read_object(event.data, event.type)
            found = Found(str(data["hand_id"]), str(data["name"]), str(data.get("daemon", "")))
        except (CarpalError, KeyError):
            continue  # redacted
        if event.type != "hand.provisioned":
            gone.add(found.hand_id)
        elif found.hand_id not in gone:
            live.setdefault(found.name, found)
    for each in live.values():
        if wanted in (each.name, each.hand_id):
            return each
    if not wanted and len(live) == 1:
        return next(iter(live.values()))
    there = ", ".join(sorted(live)) or "none: a hand is made at its first call"
    what = f"no live hand {wanted!r}" if wanted else f"{len(live)} live hands"
    raise refuse(
        Reason.HAND_NOT_FOUND,
        f"the session has {what}; live: {there}",
        action="name one that is live",
        field="hand",
    )


async def passed(
    ways: Ways, requests: AsyncIterator[hand_pb2.TunnelRequest]
) -> AsyncGenerator[hand_pb2.TunnelResponse, None]:
    """Pass on what the person sends, and give what comes back, to its end. Raises what ends it."""
    giving = asyncio.create_task(_give(ways, requests))
    try:
        while (said := await ways.back.get()) is not None:
            yield said
            if said.HasField("end"):
                return
    finally:
        giving.cancel()
        await asyncio.wait({giving})
        if not giving.cancelled() and (error := giving.exception()) is not None:
            log.info("what a person sends cannot be read", extra={"why": str(error)})


async def _give(ways: Ways, requests: AsyncIterator[hand_pb2.TunnelRequest]) -> None:
    ended = False
    try:
        async for request in requests:
            if request.HasField("open"):
                raise invalid("open", "only the first message may be")
            await ways.out.put(request)
            ended |= request.HasField("end")
    except CarpalError as error:
        ways.back.end(error)
        return
    if not ended:  # their command is gone, and is owed no more
        ways.back.end(refuse(Reason.UNAVAILABLE, "the person's command ended"))


async def _tunnelled(
    requests: AsyncIterator[pb.EnterRequest],
) -> AsyncIterator[hand_pb2.TunnelRequest]:
    async for request in requests:
        if request.HasField("open"):
            raise invalid("open", "only the first message may be")
        yield request.tunnel


async def asked(requests: AsyncIterator[pb.EnterRequest]) -> pb.EnterOpen:
    """What a person says first. INVALID_FIELD for anything else."""
    opening = await _next(requests)
    if opening is None or not opening.HasField("open"):
        raise invalid("open", "the first message must be")
    return opening.open


async def first(requests: AsyncIterator[hand_pb2.TunnelRequest]) -> hand_pb2.TunnelOpen:
    """What another brain says first. INVALID_FIELD for anything else."""
    opening = await _next(requests)
    if opening is None or not opening.HasField("open"):
        raise invalid("open", "the first message must be")
    return opening.open


async def _next(requests: AsyncIterator[T]) -> T | None:
    try:
        # A read that is cancelled ends its stream, and so does what is raised here.
        async with asyncio.timeout(_OPENING_LIMIT):
            async for request in requests:
                return request
    except TimeoutError:
        raise refuse(Reason.UNAVAILABLE, f"nothing came for {_OPENING_LIMIT:g} s") from None
    return None


class _Relay:
    """Both ways of a tunnel at another brain."""

    def __init__(self) -> None:
        self.back: Passage[hand_pb2.TunnelResponse] = Passage()
        self.out: Passage[hand_pb2.TunnelRequest] = Passage()


@asynccontextmanager
async def _relayed(
    stub: "hand_pb2_grpc.HandAsyncStub", opening: hand_pb2.TunnelOpen, daemon: str, peer: str
) -> AsyncIterator[Ways]:
    ways = _Relay()
    with held(stub.Tunnel(metadata=((DAEMON_KEY, daemon),))) as stream:

        async def read() -> None:
            try:
                while isinstance(said := await stream.read(), hand_pb2.TunnelResponse):
                    await ways.back.put(said)
                ways.back.end()
            except grpc.aio.AioRpcError as error:
                ways.back.end(from_rpc(error, peer))

        async def write() -> None:
            try:
                while (said := await ways.out.get()) is not None:
                    await stream.write(said)
                await stream.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the stream is over; the reader learns why

        tasks = {asyncio.create_task(read()), asyncio.create_task(write())}
        try:
            await ways.out.put(hand_pb2.TunnelRequest(open=opening))
            yield ways
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
