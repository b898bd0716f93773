"""One link as a test holds it: both ends, and what is on its way between them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from carpal.link import Event, Link, Outgoing, Side, State
from carpal.link_output import Reading
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_ends import hello

Message = pb.DaemonMessage | pb.BrainMessage


class Pipe:
    """One direction: an outbox, then frames on their way."""

    def __init__(self, parse: Callable[[bytes], Message]) -> None:
        self._parse = parse
        self._urgent: deque[bytes] = deque()
        self._queue: deque[bytes] = deque()
        self.frames: deque[list[bytes]] = deque()
        self.swallows = False
        """What is sent from now on never comes, and nobody is told."""

    def put(self, outgoing: list[Outgoing]) -> None:
        """What an end wants sent."""
        for message, urgent in outgoing:
            (self._urgent if urgent else self._queue).append(message.SerializeToString())

    def send(self, most: int) -> None:
        """The writer takes a frame: urgent messages first."""
        frame: list[bytes] = []
        while len(frame) < most and (source := self._urgent or self._queue):
            frame.append(source.popleft())
        if frame and not self.swallows:
            self.frames.append(frame)

    def take(self, *, again: bool) -> list[Message]:
        """The next frame that comes; with `again` it will come once more."""
        frame = self.frames[0] if again else self.frames.popleft()
        return [self._parse(message) for message in frame]

    def lose(self) -> None:
        """All that is on its way is gone."""
        for each in (self._urgent, self._queue, self.frames):
            each.clear()
        self.swallows = True

    @property
    def empty(self) -> bool:
        """Nothing is on its way."""
        return not (self._urgent or self._queue or self.frames)


class Wire:
    """One link: its ends and the stream between them."""

    def __init__(self, number: int, at: str, last_epoch: int, now: float) -> None:
        self.number = number
        self.at = at
        """The brain it leads to."""
        self.said = last_epoch
        """The epoch that the daemon's hello named."""
        self.brain = Link(Side.BRAIN, now)
        self.daemon = Link(Side.DAEMON, now, hello(last_epoch))
        self.down = Pipe(pb.BrainMessage.FromString)
        self.up = Pipe(pb.DaemonMessage.FromString)
        self.cut = False
        self.drained = False
        """The brain said so."""
        self.repeated = False
        """A frame came twice, so that an end may take offence."""
        self.unread: set[tuple[int, int]] = set()
        """Answers that were abandoned."""

    def flush(self) -> None:
        """What the ends want sent goes into the outboxes."""
        self.down.put(self.brain.outgoing())
        self.up.put(self.daemon.outgoing())

    def arrive(self, side: Side, now: float, *, again: bool) -> list[Event]:
        """A frame comes to an end, or the news that the stream is over."""
        pipe, end = (self.up, self.brain) if side is Side.BRAIN else (self.down, self.daemon)
        self.repeated = self.repeated or again
        if pipe.frames:
            end.receive(pipe.take(again=again), now)
        elif self.cut or self._left(side):
            end.eof("the stream ended")
        return end.events()

    def _left(self, side: Side) -> bool:
        """Whether the other end is over, and all it said has come."""
        pipe, other = (self.up, self.daemon) if side is Side.BRAIN else (self.down, self.brain)
        return other.state is State.CLOSED and pipe.empty and not pipe.swallows

    def break_(self) -> None:
        """The connection is gone, with all that was on its way."""
        self.cut = True
        self.down.lose()
        self.up.lose()

    @property
    def whole(self) -> bool:
        """Whether it can go on."""
        lost = self.cut or self.down.swallows or self.up.swallows
        return not lost and State.CLOSED not in (self.brain.state, self.daemon.state)

    @property
    def over(self) -> bool:
        """Both ends know that it ended."""
        return self.brain.state is self.daemon.state is State.CLOSED


@dataclass
class Attach:
    """A stream of its own for one answer, on the same connection as a wire."""

    wire: Wire
    opening: pb.AttachOpen
    sent: int
    """Output that went, up to this offset."""
    up: deque[bytes] = field(default_factory=deque)
    down: deque[int] = field(default_factory=deque)
    """Offsets acknowledged, on their way."""
    broken: bool = False
    refused: bool = False
    ended: bool = False
    """The brain got the result."""
    taken: Wire | None = None
    """The link that the brain took it for."""
    reading: Reading = field(default_factory=Reading)

    def say(self, response: hand_pb2.ExecuteResponse) -> None:
        """The daemon sends."""
        self.up.append(response.SerializeToString())
