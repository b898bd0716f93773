"""Both ends of a link without anything between them, for tests."""

from carpal.errors import CarpalError
from carpal.link import Closed, Event, Incoming, Link, Side, State
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

KINDS = {
    Side.BRAIN: [f.name for f in pb.DaemonMessage.DESCRIPTOR.oneofs[0].fields],
    Side.DAEMON: [f.name for f in pb.BrainMessage.DESCRIPTOR.oneofs[0].fields],
}


def hello(last_epoch: int = 0) -> pb.Hello:
    return pb.Hello(daemon_id="d", protocol_min=1, protocol_max=1, last_epoch=last_epoch)


def welcome(epoch: int = 1, interval: float = 5.0) -> pb.Welcome:
    message = pb.Welcome(protocol=1, epoch=epoch)
    message.heartbeat_interval.FromMilliseconds(int(interval * 1000))
    message.silence_limit.FromMilliseconds(int(interval * 3000))
    return message


def sent(link: Link) -> list[Incoming]:
    return [message for message, _ in link.outgoing()]


def deliver(source: Link, target: Link, now: float) -> list[Event]:
    target.receive(sent(source), now)
    return target.events()


def linked(now: float = 0.0) -> tuple[Link, Link]:
    """A brain's and a daemon's end that have greeted each other."""
    brain, daemon = Link(Side.BRAIN, now), Link(Side.DAEMON, now, hello())
    deliver(daemon, brain, now)
    brain.welcome(welcome(), now)
    deliver(brain, daemon, now)
    return brain, daemon


def closed(link: Link) -> bool:
    """Whether the link ended since its events were last taken."""
    return any(isinstance(event, Closed) for event in link.events())


def fault(link: Link) -> CarpalError:
    """What the link ended with, just now."""
    (end,) = [event for event in link.events() if isinstance(event, Closed)]
    assert end.error is not None
    return end.error


def at(side: Side, state: State) -> Link:
    """A link brought to a state, its events taken."""
    brain, daemon = Link(Side.BRAIN, 0.0), Link(Side.DAEMON, 0.0, hello())
    if state is not State.GREETING:
        deliver(daemon, brain, 0.0)
    if state not in (State.GREETING, State.GREETED):
        brain.welcome(welcome(), 0.0)
        deliver(brain, daemon, 0.0)
        # A request that is open, so that replies and abandons have something to name.
        brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
        deliver(brain, daemon, 0.0)
    link = brain if side is Side.BRAIN else daemon
    if state is State.DRAINING:
        link.drain(pb.Drain())
    elif state is State.CLOSED:
        link.eof("gone")
    link.events()
    link.outgoing()
    assert link.state is state
    return link


def message(side: Side, kind: str) -> pb.DaemonMessage | pb.BrainMessage:
    """A well-formed message of a kind, as the other end would send it."""
    bodies = {
        "hello": hello(),
        "welcome": welcome(epoch=2),
        "request": pb.Request(request_id=2, list_hands=hand_pb2.ListHandsRequest()),
        "reply": pb.Reply(request_id=1, last=True, list_hands=hand_pb2.ListHandsResponse()),
        "abandon": pb.Abandon(request_id=1),
    }
    whole = pb.DaemonMessage() if side is Side.BRAIN else pb.BrainMessage()
    part = getattr(whole, kind)
    part.SetInParent()
    if kind in bodies:
        part.CopyFrom(bodies[kind])
    return whole
