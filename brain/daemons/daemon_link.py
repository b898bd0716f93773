"""The I/O shell around one daemon's link: reads, writes, ticks, and asks.

One reader (the RPC's own task), one writer (drains the outbox), one ticker.
Whatever ends the link fails every open request with DAEMON_NOT_LINKED: the
call itself goes on at the hand, and is asked about on the next link.
"""

import asyncio
import functools
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from brain.daemons.attach import Answer, Requests
from brain.daemons.meeting import Meeting
from brain.daemons.past import CUT, GOODBYE
from carpal.coalesce import Outbox
from carpal.errors import CarpalError, refuse
from carpal.fault_points import frame_points, point
from carpal.identity import Identity
from carpal.link import (
    CapacityChanged,
    Closed,
    Event,
    Greeted,
    Link,
    PeerDraining,
    Replied,
    Side,
    State,
)
from carpal.link_answers import not_here
from carpal.link_terms import TUNNEL
from carpal.server import Context
from carpal.status import Reason
from carpal.v1 import hand_pb2, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

_FLUSH = 2.0
"""Seconds for the last messages, goodbye among them, to leave."""

Admit = Callable[["DaemonLink", pb.Hello, int], Awaitable[pb.Welcome]]
"""Decides on a hello: raises a refusal or gives the welcome."""


class DaemonLink:
    """One daemon's link at this brain, while it lasts."""

    def __init__(self, identity: Identity, lease_left: Callable[[], float]) -> None:
        """`lease_left` is the brain's own lease in seconds, sent with heartbeats."""
        self.identity = identity
        self.hello = pb.Hello()
        self.capacity = pb.Capacity()
        self.draining = False
        self.welcomed_at = 0.0
        """Seconds since the epoch; 0 until it is welcomed."""
        self.why = ""
        """What ended it: a reason, or a word of `past`."""
        self._lease_left = lease_left
        self._link = Link(Side.BRAIN, time.monotonic())
        self._outbox: Outbox[pb.BrainMessage] = Outbox()
        self._answers: dict[int, Answer | Meeting] = {}
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ticking = asyncio.Event()
        self._due = math.inf
        """When the ticker looks again, unless it is woken."""

    @property
    def daemon_id(self) -> str:
        """The daemon's name, from its certificate."""
        return self.identity.name

    async def serve(
        self, requests: AsyncIterator[pb.ConnectRequest], context: Context, admit: Admit
    ) -> None:
        """Run the link until it ends; raises the refusal or fault that ended it."""
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(context))
                ticker = group.create_task(self._tick())
                reader = group.create_task(self._read(requests, admit))
                await asyncio.wait({self._ended})
                ticker.cancel()
                reader.cancel()
                # It ends when the outbox is closed and empty; or the daemon does not read. Cut
                # in the middle of a write, it would leave the stream without its status.
                await asyncio.wait({writer}, timeout=_FLUSH)
                writer.cancel()
                self._ended.result()
        finally:
            if not self._ended.done():  # cancelled: its connection broke
                self.why = self.why or CUT
            self.end(refuse(Reason.DAEMON_NOT_LINKED, f"the link of {self.daemon_id} ended"))

    async def call(self, request: pb.Request) -> AsyncGenerator[pb.Reply, None]:
        """Ask the daemon; yields the answer's messages until the last, whichever way they come.

        Raises the daemon's refusal, or DAEMON_NOT_LINKED when the link ends.
        Leaving early abandons the answer and lets the call go on.
        """
        request_id = self._link.request(request)
        answer = self._answers[request_id] = Answer(request)
        self._flush()
        try:
            async with aclosing(answer.replies()) as replies:
                async for reply in replies:
                    yield reply
        finally:
            del self._answers[request_id]
            if answer.complete:
                self._link.finish(request_id)
            else:
                self._link.abandon(request_id)
                self._flush()

    @asynccontextmanager
    async def tunnel(self, opening: hand_pb2.TunnelOpen, principal: str) -> AsyncIterator[Meeting]:
        """Have the daemon let a person in; they are out at the end of the block.

        Begins once the daemon's stream is there, and nothing is passed on yet. Raises the daemon's
        refusal, NOT_BUILT when it is too old, and DAEMON_NOT_LINKED when the link ends.
        """
        if TUNNEL not in self.hello.capabilities:
            why = f"daemon {self.daemon_id} is too old to let anybody in"
            raise refuse(Reason.NOT_BUILT, why, action="install a newer one")
        request_id = self._link.request(pb.Request(principal=principal, tunnel=opening))
        meeting = self._answers[request_id] = Meeting(opening.tunnel_id)
        self._flush()
        try:
            await meeting.arrived()
            yield meeting
        finally:
            meeting.leave()
            del self._answers[request_id]
            if meeting.complete:
                self._link.finish(request_id)
            else:
                self._link.abandon(request_id)
                self._flush()

    async def attach(self, opening: pb.AttachOpen, requests: Requests, context: Context) -> None:
        """Serve an Attach stream of an open answer; CALL_NOT_FOUND when it belongs to none."""
        self._link.attach(opening)
        answer = self._answers.get(opening.request_id)
        if answer is None:
            raise not_here(opening)
        read = functools.partial(self._link.acknowledge, opening.request_id)
        await answer.carry(requests, context, read)

    def tell_brains(self, addresses: list[str]) -> None:
        """Tell the daemon which brains there are."""
        self._link.brains(addresses)
        self._flush()

    def tell_revocations(self, rows: list[types_pb2.Revocation]) -> None:
        """Tell the daemon which servers are revoked."""
        self._link.revocations(rows)
        self._flush()

    def drain(self, reason: str, after: float = 0.0) -> None:
        """Ask the daemon to dial another brain, `after` seconds from now."""
        drain = pb.Drain(reason=reason)
        drain.reconnect_after.FromMilliseconds(int(after * 1000))
        self._link.drain(drain)
        self._flush()

    def end(self, error: CarpalError | None) -> None:
        """End the link, with a fault or on purpose; again changes nothing."""
        if not self._ended.done():
            self.why = self.why or (str(error.reason) if error else GOODBYE)
            self._link.goodbye(str(error) if error else "the brain stops")
            self._flush()
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
                self._ended.exception()  # it may have no waiter left
        self._outbox.close()
        gone = refuse(Reason.DAEMON_NOT_LINKED, f"daemon {self.daemon_id} is not linked")
        for answer in self._answers.values():
            answer.put(gone)

    async def _read(self, requests: AsyncIterator[pb.ConnectRequest], admit: Admit) -> None:
        async for frame in requests:
            self._link.receive(list(frame.messages), time.monotonic())
            await self._handle(admit)
        if self._link.state is not State.CLOSED:
            self.why = CUT
        self._link.eof("the daemon's stream ended")
        await self._handle(admit)

    async def _handle(self, admit: Admit | None = None) -> None:
        for event in self._link.events():
            if isinstance(event, Greeted) and admit is not None:
                self.hello = event.hello
                self.capacity = event.hello.capacity
                point("brain.link.before_welcomed")
                welcome = await admit(self, event.hello, event.protocol)
                self._link.welcome(welcome, time.monotonic())
                self.welcomed_at = time.time()
                point("brain.link.welcomed")
            else:
                self._take(event)
        self._flush()
        if self._link.next_tick() < self._due:  # most of what comes only puts it off
            self._ticking.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, Replied):
            if event.reply.request_id in self._answers:
                self._answers[event.reply.request_id].put(event.reply)
        elif isinstance(event, CapacityChanged):
            self.capacity = event.capacity
        elif isinstance(event, PeerDraining):
            self.draining = True
        elif isinstance(event, Closed):
            log.info("link closed", extra={"daemon": self.daemon_id, "reason": event.reason})
            if event.error is not None and event.request_id in self._answers:
                # Who asked is told: asked again, it may well be answered the same way again.
                self._answers[event.request_id].put(event.error)
            self.end(event.error)

    async def _tick(self) -> None:
        while True:
            self._due = due = self._link.next_tick()
            self._ticking.clear()
            try:
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._ticking.wait()
            except TimeoutError:
                now = time.monotonic()
                self._link.tick(now, self._lease_left(), late=now - due)
                await self._handle()

    async def _write(self, context: Context) -> None:
        async for batch in self._outbox.frames():
            frame_points("brain", batch, "before_written")
            await context.write(pb.ConnectResponse(messages=batch))
            frame_points("brain", batch, "written")

    def _flush(self) -> None:
        for message, urgent in self._link.outgoing():
            if isinstance(message, pb.BrainMessage):
                self._outbox.put(message, urgent=urgent)

    @property
    def open(self) -> bool:
        """Whether requests can be made."""
        return self._link.state in (State.OPEN, State.DRAINING)
