"""When a link beats, and when its silence has lasted too long. Pure: the clock is told.

All is in seconds on any monotonic clock of this end. The brain sets the pace,
in its welcome; until then the limits are those of a greeting.
"""

from carpal.link_table import LIVE, Side, State
from carpal.link_terms import SILENT_BEATS
from carpal.v1 import orchestrator_pb2 as pb

GREETING_LIMIT = 5.0
"""Seconds in which hello must have come."""
WELCOME_LIMIT = 20.0
"""Seconds from hello to welcome: a brain to which thousands come at once needs a while."""


class Pace:
    """One end's heartbeats and its patience."""

    def __init__(self, side: Side, now: float) -> None:
        self.limit = GREETING_LIMIT if side is Side.BRAIN else WELCOME_LIMIT
        """Silence after which the link is over."""
        self._interval = GREETING_LIMIT
        self._heard = self._beat = now
        self._beats = 0

    def our_turn(self) -> None:
        """The brain got hello: until the welcome it is not the other end that is silent."""
        self.limit = WELCOME_LIMIT

    def begin(self, welcome: pb.Welcome) -> None:
        """The pace from here on."""
        self._interval = welcome.heartbeat_interval.ToMilliseconds() / 1000 or GREETING_LIMIT
        self.limit = welcome.silence_limit.ToMilliseconds() / 1000 or SILENT_BEATS * self._interval

    def restart(self, now: float) -> None:
        """The link opened."""
        self._heard = self._beat = now

    def heard(self, now: float) -> None:
        """Something came."""
        self._heard = now

    def silent(self, now: float, late: float) -> bool:
        """Whether nothing came for the limit; `late` is for how long this end stood still."""
        if late >= self._interval:
            # The silence may be ours: what the other end said meanwhile is to be read first.
            self._heard = max(self._heard, now - self.limit + self._interval)
        return now - self._heard >= self.limit

    def beat(self, now: float) -> pb.Heartbeat | None:
        """The heartbeat that is due; None before it is."""
        if now - self._beat < self._interval:
            return None
        self._beat = now
        self._beats += 1
        return pb.Heartbeat(sequence=self._beats)

    def next(self, state: State) -> float:
        """When something is due, at the latest."""
        silence = self._heard + self.limit
        return min(silence, self._beat + self._interval) if state in LIVE else silence
