"""The control stream between a daemon and a brain, as a state machine. Pure.

Sans-I/O: no clock, socket or event loop in it. The same class runs on both
ends; `Side` says which. Feed it what came (`receive`) and the time (`tick`);
take what it wants sent (`outgoing`) and what happened (`events`). The shells
around it are `brain/daemons/daemon_link.py` and `hands/link/brain_link.py`.

Its parts are data and bookkeeping: what may come and go in which state
(`link_table`), answers that are not complete (`link_answers`), output that
was read (`link_output`), ids that came (`link_ids`), what is too large
(`link_sizes`), and what the shells are told (`link_events`).

It does not resend: a request whose link is gone is asked again on the next
one, where the call's id makes that safe. What it says and promises, in prose:
docs/link.md.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from carpal.errors import CarpalError, refuse, to_status
from carpal.link_answers import Answers, not_here
from carpal.link_events import (
    Abandoned,
    BrainsChanged,
    CapacityChanged,
    Closed,
    Contact,
    Event,
    Greeted,
    PeerDraining,
    Replied,
    Requested,
    RevocationsTold,
    Welcomed,
)
from carpal.link_ids import Arrivals
from carpal.link_pace import GREETING_LIMIT, WELCOME_LIMIT, Pace
from carpal.link_sizes import MESSAGE_MAX, fitting, too_large
from carpal.link_table import GREETINGS, LIVE, RECEIVES, SENDS, URGENT, Side, State
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import types_pb2

__all__ = [
    "GREETING_LIMIT",
    "PROTOCOL_MAX",
    "PROTOCOL_MIN",
    "RECEIVES",
    "WELCOME_LIMIT",
    "Abandoned",
    "BrainsChanged",
    "CapacityChanged",
    "Closed",
    "Contact",
    "Event",
    "Greeted",
    "Incoming",
    "Link",
    "Outgoing",
    "PeerDraining",
    "Replied",
    "Requested",
    "RevocationsTold",
    "Side",
    "State",
    "Welcomed",
]

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
"""Contract versions this build speaks."""


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
        self.epoch = 0
        """Of this link, from the welcome on."""
        self._hello = hello
        self._out: deque[Outgoing] = deque()
        self._events: deque[Event] = deque()
        self._pace = Pace(side, now)
        self._ended = False
        self._draining = self._peer_draining = False
        """Which end said drain."""
        self._asked = 0
        """Brain: the newest id given."""
        self._arrivals = Arrivals()
        """Daemon: the ids that came."""
        self._answers = Answers()
        if hello is not None:
            self._send("hello", hello)

    # What came.

    def receive(self, messages: Sequence[Incoming], now: float) -> None:
        """Take a frame's messages, in order."""
        if self.state in LIVE:
            self._pace.heard(now)
        for message in messages:
            kind = message.WhichOneof("kind")
            if kind is None or self.state is State.CLOSED:
                continue  # an arm of a newer peer, or what came after the end
            nexts = RECEIVES[self.side, self.state]
            if kind not in nexts:
                self._violate(f"{kind} came while {self.state.name.lower()}")
                return
            self.state = nexts[kind]
            getattr(self, f"_on_{kind}")(getattr(message, kind))
            if kind in GREETINGS:
                self._pace.heard(now)  # until then nothing else counts

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
        if self._pace.silent(now, late):
            waited = f"nothing came for {self._pace.limit:g} s"
            self._close(refuse(Reason.LINK_SILENT, waited), waited)
        elif self.state in LIVE and (beat := self._pace.beat(now)):
            if self.side is Side.BRAIN:
                beat.lease_left.FromMilliseconds(int(max(0.0, lease_left) * 1000))
            self._send("heartbeat", beat)

    def next_tick(self) -> float:
        """When `tick` has something to do, at the latest."""
        return self._pace.next(self.state)

    # What this end does.

    def welcome(self, welcome: pb.Welcome, now: float) -> None:
        """Brain: answer the hello; the link is open."""
        if self._send("welcome", welcome):  # or it closed while the brain looked up what to say
            self._begin(welcome)
            self._pace.restart(now)

    def request(self, request: pb.Request) -> int:
        """Brain: ask; the id is set here and returned.

        DAEMON_NOT_LINKED when closed, and for a new hand once this brain
        drains: ask on the daemon's next link. MESSAGE_TOO_LARGE for what no
        link can carry.
        """
        if self.state not in LIVE:
            raise refuse(Reason.DAEMON_NOT_LINKED, "the daemon's link is closed")
        if self._draining and request.HasField("provision"):
            raise _draining()
        request.request_id = self._asked + 1
        if (size := request.ByteSize()) > MESSAGE_MAX:
            raise too_large("the request", size)
        self._asked += 1
        self._answers.begin(request)
        self._send("request", request, urgent=request.HasField("cancel"))
        return request.request_id

    def abandon(self, request_id: int) -> None:
        """Brain: stop reading an answer, moved or not; the call itself goes on."""
        if self.state in LIVE and self._answers.leave(request_id):
            self._send("abandon", pb.Abandon(request_id=request_id))

    def reply(self, reply: pb.Reply) -> None:
        """Daemon: answer. One that says `attached` moves the rest to an Attach stream.

        Dropped when the link is closed or the answer is over or moved, since
        the journal has it. What is too large is replaced, as `fitting` says.
        """
        answer = self._answers.on_control(reply.request_id)
        if self.state in LIVE and answer is not None and answer.new(reply := fitting(reply)):
            self._note_last(reply)
            self._send("reply", reply)

    def attach(self, opening: pb.AttachOpen) -> int | None:
        """Brain: an Attach stream opens; from which offset it carries the call's output.

        None while the reply that says `attached` has not come: ask again after
        the next frame. CALL_NOT_FOUND when it belongs to no answer of this link.
        """
        if self.state not in LIVE or opening.epoch != self.epoch:
            raise not_here(opening)
        return self._answers.attach(opening)

    def acknowledge(self, request_id: int, offset: int) -> None:
        """Either end: the brain has read a moved answer's output below `offset`."""
        self._answers.acknowledge(request_id, offset)

    def finish(self, request_id: int) -> None:
        """Either end: a moved answer ended on its Attach stream."""
        self._answers.leave(request_id)

    def capacity(self, capacity: pb.Capacity) -> None:
        """Daemon: say how much room there is."""
        self._send("capacity", capacity)

    def brains(self, addresses: list[str]) -> None:
        """Brain: say which brains there are."""
        self._send("brains", pb.Brains(addresses=addresses))

    def revocations(self, rows: list[types_pb2.Revocation]) -> None:
        """Brain: say which servers are revoked."""
        self._send("revocations", pb.Revocations(revocations=rows))

    def drain(self, drain: pb.Drain) -> None:
        """Say, once, that this end goes away soon; also when the other end does."""
        if not self._draining and self._send("drain", drain):
            self._draining = True

    def goodbye(self, reason: str) -> None:
        """End the link on purpose."""
        if self._send("goodbye", pb.Goodbye(reason=reason)):
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
        return self._answers.ids

    @property
    def attached(self) -> dict[int, int]:
        """Requests whose answer moved to an Attach stream → the offset acknowledged."""
        return self._answers.moved

    # One method a message kind.

    def _on_hello(self, hello: pb.Hello) -> None:
        protocol = min(hello.protocol_max, PROTOCOL_MAX)
        if protocol < max(hello.protocol_min, PROTOCOL_MIN):
            theirs = f"{hello.protocol_min} to {hello.protocol_max}"
            ours = f"{PROTOCOL_MIN} to {PROTOCOL_MAX}"
            message = f"the daemon speaks contract versions {theirs}, the brain {ours}"
            self._fail(Reason.VERSION_UNSUPPORTED, message)
            return
        self._hello = hello
        self._pace.our_turn()
        self._events.append(Greeted(hello, protocol))

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        if self._hello is not None and welcome.epoch <= self._hello.last_epoch:
            message = (
                f"epoch {welcome.epoch} is not above {self._hello.last_epoch}, obeyed before; "
                "was the session store replaced by an older one?"
            )
            self._fail(Reason.LINK_SUPERSEDED, message)
            return
        self._begin(welcome)
        self._events.append(Welcomed(welcome))

    def _on_request(self, request: pb.Request) -> None:
        if wrong := self._arrivals.take(request.request_id):
            self._violate(wrong)
            return
        self._answers.begin(request)
        if request.WhichOneof("call") is None:
            unknown = refuse(Reason.NOT_BUILT, "this daemon does not know the request")
            self._refuse(request, unknown)
        elif self._peer_draining and request.HasField("provision"):
            self._refuse(request, _draining())
        else:
            self._events.append(Requested(request))

    def _on_reply(self, reply: pb.Reply) -> None:
        answer = self._answers.on_control(reply.request_id)
        if answer is None:
            self._violate(f"a reply to request {reply.request_id}, which is not open")
            return
        if wrong := answer.wrong(reply):
            self._violate(wrong, reply.request_id)
            return
        if not answer.new(reply):
            return
        self._note_last(reply)
        self._events.append(Replied(reply))

    def _on_abandon(self, abandon: pb.Abandon) -> None:
        if abandon.request_id not in self._arrivals:
            self._violate(f"request {abandon.request_id} was abandoned and never came")
        elif self._answers.leave(abandon.request_id):
            self._events.append(Abandoned(abandon.request_id))

    def _on_heartbeat(self, heartbeat: pb.Heartbeat) -> None:
        if self.side is Side.DAEMON:
            self._events.append(Contact(heartbeat.lease_left.ToMilliseconds() / 1000))

    def _on_capacity(self, capacity: pb.Capacity) -> None:
        self._events.append(CapacityChanged(capacity))

    def _on_brains(self, brains: pb.Brains) -> None:
        self._events.append(BrainsChanged(tuple(brains.addresses)))

    def _on_revocations(self, told: pb.Revocations) -> None:
        self._events.append(RevocationsTold(tuple(told.revocations)))

    def _on_drain(self, drain: pb.Drain) -> None:
        self._peer_draining = True
        self._events.append(PeerDraining(drain))

    def _on_goodbye(self, goodbye: pb.Goodbye) -> None:
        self._close(None, goodbye.reason or "the other end said goodbye")

    # How.

    def _begin(self, welcome: pb.Welcome) -> None:
        self.epoch = welcome.epoch
        self._pace.begin(welcome)

    def _note_last(self, reply: pb.Reply) -> None:
        if reply.last or reply.attached:
            self._answers.last_reply(reply.request_id, attached=reply.attached)

    def _refuse(self, request: pb.Request, error: CarpalError) -> None:
        status = to_status(error)
        self.reply(pb.Reply(request_id=request.request_id, last=True, status=status))

    def _send(self, kind: str, body: Any, *, urgent: bool = False) -> bool:
        """Queue a message if this state sends its kind, and move on as the table says."""
        nexts = SENDS.get((self.side, self.state), {})
        if kind not in nexts:
            return False
        self.state = nexts[kind]
        message = pb.BrainMessage if self.side is Side.BRAIN else pb.DaemonMessage
        self._out.append((message(**{kind: body}), urgent or kind in URGENT))
        return True

    def _violate(self, message: str, request_id: int = 0) -> None:
        self._fail(Reason.LINK_VIOLATION, message, request_id)

    def _fail(self, reason: Reason, message: str, request_id: int = 0) -> None:
        if self.side is Side.DAEMON:
            # A brain's refusal is the status of its RPC; a daemon has no other way to say why.
            self._send("goodbye", pb.Goodbye(reason=message))
        self._close(refuse(reason, message), message, request_id)

    def _close(self, error: CarpalError | None, reason: str, request_id: int = 0) -> None:
        self.state = State.CLOSED
        if not self._ended:
            self._ended = True
            self._events.append(Closed(error, reason, request_id))


def _draining() -> CarpalError:
    return refuse(
        Reason.DAEMON_NOT_LINKED,
        "the daemon's link drains and takes no new hands",
        action="ask again on its next link",
    )
