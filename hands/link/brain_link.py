"""The I/O shell around one link to one brain: reads, writes, ticks, answers.

One reader, one writer that drains the outbox, one ticker, and a task for each
request being answered. Whatever ends the link stops none of what the requests
started: answers that find it gone are dropped, for the journal has the truth.
"""

import asyncio
import functools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import grpc

from carpal.client import from_rpc
from carpal.coalesce import Outbox
from carpal.errors import CarpalError, refuse, to_status
from carpal.fault_points import frame_points, point
from carpal.identity import Identity
from carpal.link import (
    Abandoned,
    BrainsChanged,
    Closed,
    Contact,
    Event,
    Link,
    PeerDraining,
    Requested,
    RevocationsTold,
    Side,
    Welcomed,
)
from carpal.link_terms import ATTACH
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc, types_pb2
from hands import attach
from hands.inventory import Inventory
from hands.link import dispatch
from hands.people import tunnel_stream
from hands.service import HandService

log = logging.getLogger(__name__)

_LOOK = 60.0
"""Seconds between looks at the clock: a timer stands still while the machine sleeps."""
_FLUSH = 2.0
"""Seconds for the last messages, goodbye among them, to leave."""

OnWelcome = Callable[[pb.Welcome], Awaitable[Identity]]
"""Says which brain it is."""
OnRevocations = Callable[[Sequence[types_pb2.Revocation]], Awaitable[None]]


class BrainLink:
    """One link, from hello to its end."""

    def __init__(
        self,
        brain: "orchestrator_pb2_grpc.OrchestratorAsyncStub",
        peer: str,
        hello: pb.Hello,
        service: HandService,
        inventory: Inventory,
        *,
        on_welcome: OnWelcome,
        on_brains: Callable[[Sequence[str]], None],
        on_revocations: OnRevocations,
    ) -> None:
        """`peer` says who is linked to, in words; `on_brains` is told which brains there are.

        What `on_welcome` or `on_revocations` refuses ends the link.
        """
        self._brain = brain
        self._stream = brain.Connect()
        self._peer = peer
        self._service = service
        self._inventory = inventory
        self._on_welcome = on_welcome
        self._on_brains = on_brains
        self._on_revocations = on_revocations
        self._link = Link(Side.DAEMON, time.monotonic(), hello)
        self._outbox: Outbox[pb.DaemonMessage] = Outbox()
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._leaving: list[asyncio.Task[None]] = []
        """Wait until it is time to go."""
        self._capacity = hello.capacity
        self._attaches = False
        self._ended: asyncio.Future[CarpalError | None] = asyncio.get_running_loop().create_future()
        self._refused = False
        self._ticking = asyncio.Event()
        self._due = math.inf
        """When the ticker looks again, unless it is woken."""
        self.asked_to_leave = False
        """The brain drained, and the link ended for that reason."""

    async def run(self) -> None:
        """Serve until the link ends. Raises what it ended with, unless that was a goodbye."""
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write())
            tasks = [group.create_task(self._read(group)), group.create_task(self._tick(group))]
            self._flush()
            try:
                error = await asyncio.shield(self._ended)
                self._outbox.close()
                await asyncio.wait({writer}, timeout=_FLUSH)
            finally:
                self._inventory.blobs.left(self._brain)
                self._stream.cancel()
                for task in (writer, *tasks, *self._answering.values(), *self._leaving):
                    task.cancel()
        if error is not None:
            raise error

    def end(self, reason: str) -> None:
        """End the link on purpose; the brain may settle nothing by it."""
        self._link.drain(pb.Drain(reason=reason))
        self._link.goodbye(reason)
        self._end(None)

    def refuse(self, error: CarpalError) -> None:
        """End the link: its brain is not to be obeyed."""
        self._refused = True
        self._link.goodbye(error.message)
        self._end(error)

    async def _read(self, group: asyncio.TaskGroup) -> None:
        try:
            while isinstance(frame := await self._stream.read(), pb.ConnectResponse):
                self._link.receive(list(frame.messages), time.monotonic())
                await self._handle(group)
            self._link.eof(f"{self._peer} ended the stream")
        except grpc.aio.AioRpcError as error:
            self._end(from_rpc(error, self._peer))
        await self._handle(group)

    async def _handle(self, group: asyncio.TaskGroup) -> None:
        for event in self._link.events():
            if self._refused:
                return  # nothing else it asked for is done
            try:
                await self._take(event, group)
            except CarpalError as error:
                self.refuse(error)
        self._flush()
        if self._link.next_tick() < self._due:  # most of what comes only puts it off
            self._ticking.set()

    async def _take(self, event: Event, group: asyncio.TaskGroup) -> None:
        match event:
            case Welcomed(welcome):
                point("daemon.link.before_welcomed")
                self._attaches = ATTACH in welcome.capabilities
                brain = await self._on_welcome(welcome)
                self._leaving.append(group.create_task(self._hold(brain)))
                self._inventory.blobs.linked(self._brain)
                point("daemon.link.welcomed")
            case Requested(request):
                task = group.create_task(self._answer(request))
                self._answering[request.request_id] = task
            case BrainsChanged(addresses):
                self._on_brains(addresses)
            case RevocationsTold(rows):
                await self._on_revocations(rows)
            case Abandoned(request_id):
                self._abandon(request_id)
            case Contact(lease_left):
                # A brain without a live lease of its own may be alone on its side of a cut.
                if lease_left > 0:
                    await self._inventory.contact()
            case PeerDraining(drain):
                self._leaving.append(group.create_task(self._leave(drain)))
            case Closed(error, reason):
                log.info("link closed", extra={"peer": self._peer, "reason": reason})
                self._end(error)

    async def _answer(self, request: pb.Request) -> None:
        attached = False
        try:
            if request.HasField("tunnel"):
                await self._tunnel(request)
                return
            async for reply in dispatch.answer(self._service, request, attach=self._attaches):
                point("daemon.reply.before_queued")
                self._link.reply(reply)
                self._tell_capacity()
                self._flush()
                point("daemon.reply.queued")
                attached = reply.attached
            if attached:
                await self._carry(request)
        finally:
            self._answering.pop(request.request_id, None)

    async def _carry(self, request: pb.Request) -> None:
        """The rest of an answer that moved."""
        opening = pb.AttachOpen(
            request_id=request.request_id,
            call_id=request.execute.call_id,
            epoch=self._link.epoch,
        )
        try:
            running = self._service.execute(request.execute)
        except CarpalError as error:
            # A newer driver came just now, for one; the brain hears it when it asks again.
            log.info("output not carried", extra={"call": opening.call_id, "why": str(error)})
            return
        read = functools.partial(self._link.acknowledge, opening.request_id)
        await attach.carry(self._brain.Attach, opening, running, read)
        self._link.finish(opening.request_id)

    async def _tunnel(self, request: pb.Request) -> None:
        """Let a person in; all that they send and get travels on an Attach stream."""
        number = request.request_id
        try:
            if not self._attaches:
                raise refuse(Reason.NOT_BUILT, "this brain takes no streams of tunnels")
            with self._service.tunnels.opened(request.tunnel) as tunnel:
                self._link.reply(pb.Reply(request_id=number, last=True, attached=True))
                self._flush()
                opening = pb.AttachOpen(
                    request_id=number, call_id=request.tunnel.tunnel_id, epoch=self._link.epoch
                )
                await tunnel_stream.carry(self._brain.Attach, opening, tunnel, self._service.gate)
            self._link.finish(number)
        except CarpalError as error:
            status = to_status(self._service.gate.outward.error(error))
            self._link.reply(pb.Reply(request_id=number, last=True, status=status))
            self._flush()

    def _abandon(self, request_id: int) -> None:
        """Stop answering; the answer's end is still said, so that both ends forget it."""
        task = self._answering.pop(request_id, None)
        if task is not None:
            task.cancel()
            why = to_status(refuse(Reason.UNAVAILABLE, "the answer was abandoned"))
            self._link.reply(pb.Reply(request_id=request_id, last=True, status=why))

    async def _hold(self, brain: Identity) -> None:
        """End the link with the certificate its brain showed: one that is revoked gets no other."""
        end = brain.not_after
        while (left := (end - datetime.now(UTC)).total_seconds()) > 0:  # noqa: ASYNC110 - a clock
            await asyncio.sleep(min(left, _LOOK))
        over = f"{self._peer} showed a certificate that is over"
        self.refuse(refuse(Reason.UNREACHABLE, over, action="see why it does not renew"))

    async def _leave(self, drain: pb.Drain) -> None:
        """The brain goes away: dial another once it asks for it."""
        await asyncio.sleep(drain.reconnect_after.ToMilliseconds() / 1000)
        self.asked_to_leave = True
        self._link.goodbye("the brain drains")
        self._end(None)

    def _tell_capacity(self) -> None:
        capacity = self._inventory.capacity
        if capacity != self._capacity:
            self._capacity = capacity
            self._link.capacity(capacity)

    async def _tick(self, group: asyncio.TaskGroup) -> None:
        while not self._ended.done():
            self._due = due = self._link.next_tick()
            self._ticking.clear()
            try:
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._ticking.wait()
            except TimeoutError:
                now = time.monotonic()
                self._link.tick(now, late=now - due)
                self._tell_capacity()
                await self._handle(group)

    async def _write(self) -> None:
        try:
            async for batch in self._outbox.frames():
                frame_points("daemon", batch, "before_written")
                await self._stream.write(pb.ConnectRequest(messages=batch))
                frame_points("daemon", batch, "written")
            await self._stream.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream is over; the reader learns why

    def _flush(self) -> None:
        for message, urgent in self._link.outgoing():
            if isinstance(message, pb.DaemonMessage):
                self._outbox.put(message, urgent=urgent)

    def _end(self, error: CarpalError | None) -> None:
        if not self._ended.done():
            self._flush()
            self._ended.set_result(error)


def at(channel: grpc.aio.Channel) -> "orchestrator_pb2_grpc.OrchestratorAsyncStub":
    """The brain at the other end of a channel."""
    return orchestrator_pb2_grpc.OrchestratorStub(channel)
