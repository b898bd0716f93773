"""The control stream between a daemon and a brain, as a state machine. Pure.

Sans-I/O: no clock, socket or event loop in it. The same class runs on both
ends; `Side` says which. Feed it what came (`receive`) and the time (`tick`);
take what it wants sent (`outgoing`) and what happened (`events`). The shells
around it are `brain/daemon_link.py` and `hands/brain_link.py`.

What may come in which state is `RECEIVES`; what is not in it closes the link.
It does not resend: a request whose link is gone is asked again on the next
one, where the call's id makes that safe (design §4).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from carpal.errors import CarpalError, refuse, to_status
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
"""Contract versions this build speaks."""

GREETING_LIMIT = 5.0
"""Seconds in which hello must have come."""
WELCOME_LIMIT = 20.0
"""Seconds from hello to welcome: a brain to which thousands come at once needs a while."""


class Side(Enum):
    """Which end of the link this is."""

    BRAIN = auto()
    DAEMON = auto()


class State(Enum):
    """Where a link is in its life."""

    GREETING = auto()
    """The brain waits for hello; the daemon, having said it, for welcome."""
    GREETED = auto()
    """The brain got hello and has not said welcome yet."""
    OPEN = auto()
    DRAINING = auto()
    """One end goes away soon: no new hands, calls go on."""
    CLOSED = auto()


_RUNNING_BRAIN = {"reply", "heartbeat", "capacity"}
_RUNNING_DAEMON = {"request", "heartbeat", "abandon", "brains"}

RECEIVES: dict[tuple[Side, State], dict[str, State]] = {
    (Side.BRAIN, State.GREETING): {"hello": State.GREETED, "goodbye": State.CLOSED},
    (Side.BRAIN, State.GREETED): {"goodbye": State.CLOSED},
    (Side.BRAIN, State.OPEN): {
        **dict.fromkeys(_RUNNING_BRAIN, State.OPEN),
        "drain": State.DRAINING,
        "goodbye": State.CLOSED,
    },
    (Side.BRAIN, State.DRAINING): {
        **dict.fromkeys(_RUNNING_BRAIN | {"drain"}, State.DRAINING),
        "goodbye": State.CLOSED,
    },
    (Side.DAEMON, State.GREETING): {"welcome": State.OPEN, "goodbye": State.CLOSED},
    (Side.DAEMON, State.OPEN): {
        **dict.fromkeys(_RUNNING_DAEMON, State.OPEN),
        "drain": State.DRAINING,
        "goodbye": State.CLOSED,
    },
    (Side.DAEMON, State.DRAINING): {
        **dict.fromkeys(_RUNNING_DAEMON | {"drain"}, State.DRAINING),
        "goodbye": State.CLOSED,
    },
}
"""State and message kind → next state. Absent means a violation."""

_LIVE = {State.OPEN, State.DRAINING}


@dataclass(frozen=True)
class Greeted:
    """The brain got a valid hello and must answer with `welcome`."""

    hello: pb.Hello
    protocol: int


@dataclass(frozen=True)
class Welcomed:
    """The daemon is linked."""

    welcome: pb.Welcome


@dataclass(frozen=True)
class Requested:
    """The daemon was asked for something."""

    request: pb.Request


@dataclass(frozen=True)
class Replied:
    """The brain got one message of an answer."""

    reply: pb.Reply


@dataclass(frozen=True)
class Abandoned:
    """The brain no longer reads this request's answer."""

    request_id: int


@dataclass(frozen=True)
class Contact:
    """The brain's end lives; its own lease has this many seconds left."""

    lease_left: float


@dataclass(frozen=True)
class CapacityChanged:
    """The daemon's room for hands changed."""

    capacity: pb.Capacity


@dataclass(frozen=True)
class BrainsChanged:
    """The addresses a daemon may dial, from now on."""

    addresses: tuple[str, ...]


@dataclass(frozen=True)
class PeerDraining:
    """The other end goes away soon."""

    drain: pb.Drain


@dataclass(frozen=True)
class Closed:
    """The link ended: by goodbye (no error), or by a fault."""

    error: CarpalError | None
    reason: str


Event = (
    Greeted
    | Welcomed
    | Requested
    | Replied
    | Abandoned
    | Contact
    | CapacityChanged
    | BrainsChanged
    | PeerDraining
    | Closed
)
Incoming = pb.DaemonMessage | pb.BrainMessage
Outgoing = tuple[pb.DaemonMessage | pb.BrainMessage, bool]
"""A message, and whether it goes before all that waits."""


class Link:
    """One end of one control stream, from dial to close."""

    def __init__(self, side: Side, now: float, hello: pb.Hello | None = None) -> None:
        """`now` is seconds on any monotonic clock, here and in every method.

        The daemon gives the hello it says first.
        """
        if (hello is None) == (side is Side.DAEMON):
            raise ValueError("the daemon's side, and only it, starts with a hello")
        self.side = side
        self.state = State.GREETING
        self._hello = hello
        self._out: deque[Outgoing] = deque()
        self._events: deque[Event] = deque()
        self._interval = GREETING_LIMIT
        self._silence_limit = GREETING_LIMIT if side is Side.BRAIN else WELCOME_LIMIT
        self._last_heard = self._last_beat = now
        self._beats = 0
        self._ended = False
        self._last_request = 0
        """Brain: the newest id given. Daemon: every id up to here has come."""
        self._ahead: set[int] = set()
        """Daemon: ids that came before a lower one, since a cancel goes first."""
        self._unfinished: set[int] = set()
        """Requests whose last reply has not come (brain), or not gone (daemon)."""
        if hello is not None:
            self._out.append((pb.DaemonMessage(hello=hello), True))

    # What came.

    def receive(self, messages: Sequence[Incoming], now: float) -> None:
        """Take a frame's messages, in order."""
        self._last_heard = now
        for message in messages:
            kind = message.WhichOneof("kind")
            if kind is None or self.state is State.CLOSED:
                continue  # an arm of a newer peer, or what came after the end
            nexts = RECEIVES.get((self.side, self.state), {})
            if kind not in nexts:
                self._violate(f"{kind} came while {self.state.name.lower()}")
                return
            self.state = nexts[kind]
            getattr(self, f"_on_{kind}")(getattr(message, kind))

    def eof(self, reason: str) -> None:
        """The stream ended under the link."""
        self._close(None, reason)

    def tick(self, now: float, lease_left: float = 0.0, late: float = 0.0) -> None:
        """Send what is due and notice silence; call it at `next_tick`.

        `lease_left` is the brain's own lease, in seconds; `late` for how many
        this end stood still before it could call.
        """
        if self.state is State.CLOSED:
            return
        if late >= self._interval:
            # The silence may be ours: what the other end said meanwhile is to be read first.
            self._last_heard = max(self._last_heard, now - self._silence_limit + self._interval)
        if now - self._last_heard >= self._silence_limit:
            waited = f"nothing came for {self._silence_limit:g} s"
            self._close(refuse(Reason.LINK_SILENT, waited), waited)
        elif self.state in _LIVE and now - self._last_beat >= self._interval:
            self._last_beat = now
            self._beats += 1
            beat = pb.Heartbeat(sequence=self._beats)
            if self.side is Side.BRAIN:
                beat.lease_left.FromMilliseconds(int(max(0.0, lease_left) * 1000))
                self._out.append((pb.BrainMessage(heartbeat=beat), True))
            else:
                self._out.append((pb.DaemonMessage(heartbeat=beat), True))

    def next_tick(self) -> float:
        """When `tick` has something to do, at the latest."""
        silence = self._last_heard + self._silence_limit
        if self.state in _LIVE:
            return min(silence, self._last_beat + self._interval)
        return silence

    # What this end does.

    def welcome(self, welcome: pb.Welcome, now: float) -> None:
        """Brain: answer the hello; the link is open."""
        if self.state is not State.GREETED:
            return  # closed while the brain looked up what to say
        self.state = State.OPEN
        self._set_pace(welcome)
        self._last_heard = self._last_beat = now
        self._out.append((pb.BrainMessage(welcome=welcome), True))

    def request(self, request: pb.Request) -> int:
        """Brain: ask; the id is set here and returned. DAEMON_NOT_LINKED when closed."""
        if self.state not in _LIVE:
            raise refuse(Reason.DAEMON_NOT_LINKED, "the daemon's link is closed")
        self._last_request += 1
        request.request_id = self._last_request
        self._unfinished.add(request.request_id)
        self._out.append((pb.BrainMessage(request=request), request.HasField("cancel")))
        return request.request_id

    def abandon(self, request_id: int) -> None:
        """Brain: stop reading an answer; the call itself goes on."""
        if self.state in _LIVE and request_id in self._unfinished:
            self._out.append((pb.BrainMessage(abandon=pb.Abandon(request_id=request_id)), False))

    def reply(self, reply: pb.Reply) -> None:
        """Daemon: answer; dropped when the link is closed, since the journal has it."""
        if self.state in _LIVE and reply.request_id in self._unfinished:
            if reply.last:
                self._unfinished.discard(reply.request_id)
            self._out.append((pb.DaemonMessage(reply=reply), False))

    def capacity(self, capacity: pb.Capacity) -> None:
        """Daemon: say how much room there is."""
        if self.state in _LIVE:
            self._out.append((pb.DaemonMessage(capacity=capacity), False))

    def brains(self, addresses: list[str]) -> None:
        """Brain: say which brains there are."""
        if self.state in _LIVE:
            known = pb.Brains(addresses=addresses)
            self._out.append((pb.BrainMessage(brains=known), False))

    def drain(self, drain: pb.Drain) -> None:
        """Say that this end goes away soon."""
        if self.state is State.OPEN:
            self.state = State.DRAINING
            self._send_either(drain=drain)

    def goodbye(self, reason: str) -> None:
        """End the link on purpose."""
        if self.state is not State.CLOSED:
            self._send_either(goodbye=pb.Goodbye(reason=reason))
            self._close(None, reason)

    # What the shell takes.

    def outgoing(self) -> list[Outgoing]:
        """Messages to send, in order; each is given once."""
        taken = list(self._out)
        self._out.clear()
        return taken

    def events(self) -> list[Event]:
        """What happened, in order; each is given once."""
        taken = list(self._events)
        self._events.clear()
        return taken

    @property
    def unfinished(self) -> frozenset[int]:
        """Requests whose answer is not complete."""
        return frozenset(self._unfinished)

    # One method a message kind.

    def _on_hello(self, hello: pb.Hello) -> None:
        protocol = min(hello.protocol_max, PROTOCOL_MAX)
        if protocol < max(hello.protocol_min, PROTOCOL_MIN):
            theirs = f"{hello.protocol_min} to {hello.protocol_max}"
            ours = f"{PROTOCOL_MIN} to {PROTOCOL_MAX}"
            message = f"the daemon speaks contract versions {theirs}, the brain {ours}"
            self._close(refuse(Reason.VERSION_UNSUPPORTED, message), message)
            return
        self._silence_limit = WELCOME_LIMIT  # it is our turn to speak
        self._events.append(Greeted(hello, protocol))

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        if self._hello is not None and welcome.epoch <= self._hello.last_epoch:
            message = (
                f"epoch {welcome.epoch} is not above {self._hello.last_epoch}, obeyed before; "
                "was the session store replaced by an older one?"
            )
            self._close(refuse(Reason.LINK_SUPERSEDED, message), message)
            return
        self._set_pace(welcome)
        self._events.append(Welcomed(welcome))

    def _on_request(self, request: pb.Request) -> None:
        if request.request_id <= self._last_request or request.request_id in self._ahead:
            self._violate(f"request {request.request_id} came twice")
            return
        self._ahead.add(request.request_id)
        while self._last_request + 1 in self._ahead:
            self._last_request += 1
            self._ahead.remove(self._last_request)
        self._unfinished.add(request.request_id)
        if request.WhichOneof("call") is None:
            unknown = refuse(Reason.NOT_BUILT, "this daemon does not know the request")
            self.reply(
                pb.Reply(request_id=request.request_id, last=True, status=to_status(unknown))
            )
            return
        self._events.append(Requested(request))

    def _on_reply(self, reply: pb.Reply) -> None:
        if reply.request_id not in self._unfinished:
            self._violate(f"a reply to request {reply.request_id}, which is not open")
            return
        if reply.last:
            self._unfinished.discard(reply.request_id)
        self._events.append(Replied(reply))

    def _on_abandon(self, abandon: pb.Abandon) -> None:
        if abandon.request_id in self._unfinished:
            self._events.append(Abandoned(abandon.request_id))

    def _on_heartbeat(self, heartbeat: pb.Heartbeat) -> None:
        if self.side is Side.DAEMON:
            self._events.append(Contact(heartbeat.lease_left.ToMilliseconds() / 1000))

    def _on_capacity(self, capacity: pb.Capacity) -> None:
        self._events.append(CapacityChanged(capacity))

    def _on_brains(self, brains: pb.Brains) -> None:
        self._events.append(BrainsChanged(tuple(brains.addresses)))

    def _on_drain(self, drain: pb.Drain) -> None:
        self._events.append(PeerDraining(drain))

    def _on_goodbye(self, goodbye: pb.Goodbye) -> None:
        self._close(None, goodbye.reason or "the other end said goodbye")

    def _set_pace(self, welcome: pb.Welcome) -> None:
        self._interval = welcome.heartbeat_interval.ToMilliseconds() / 1000 or GREETING_LIMIT
        self._silence_limit = welcome.silence_limit.ToMilliseconds() / 1000 or 3 * self._interval

    def _send_either(self, **kind: pb.Drain | pb.Goodbye) -> None:
        message = pb.BrainMessage if self.side is Side.BRAIN else pb.DaemonMessage
        self._out.append((message(**kind), False))  # type: ignore[arg-type]

    def _violate(self, message: str) -> None:
        self._close(refuse(Reason.LINK_VIOLATION, message), message)

    def _close(self, error: CarpalError | None, reason: str) -> None:
        self.state = State.CLOSED
        if not self._ended:
            self._ended = True
            self._events.append(Closed(error, reason))
