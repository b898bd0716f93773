"""Whether a log is what was appended: its chain, folded event by event. Pure.

A log that is whole in itself may still have been made anew by whoever could
write all of it: only a head that was noted or signed before rules that out.
What the chain does not cover: a session's title, metadata and labels, and that
data was redacted.
"""

from carpal.chain import data_digest, event_hash, genesis
from carpal.errors import CarpalError, refuse
from carpal.event_lines import nanoseconds
from carpal.status import Reason
from carpal.v1 import types_pb2

_LAST_TIME = 1 << 63
"""A hash covers times of 63 bits, nanoseconds since 1970."""


class Verified:
    """As much of a log as was taken, all of it whole.

    Every method raises CHAIN_BROKEN at the first thing that does not fit, with
    its `position`.
    """

    def __init__(self, chain_id: str) -> None:
        self.position = 0
        self.hash = genesis(chain_id)
        self.redacted = 0
        """How many of the events have lost their data; their digests are in the chain."""
        self._expected: dict[int, bytes] = {}

    def expect(self, head: types_pb2.ChainHead) -> None:
        """The log must have had this head, which was noted; to be said before it is taken."""
        if self._expected.setdefault(head.position, head.hash) != head.hash:
            raise _broken(head.position, "two different heads were noted")
        self._compare()

    def take(self, event: types_pb2.Event) -> None:
        """The next event of the log."""
        position = self.position + 1
        if event.position != position:
            raise _broken(position, f"position {event.position} is there in its place")
        if event.HasField("redaction"):
            if event.data:
                raise _broken(position, "it is redacted, and yet has data")
            self.redacted += 1
        elif data_digest(event.data) != event.data_digest:
            raise _broken(position, "its data is not what was appended")
        time_ns = nanoseconds(event.time)
        if not 0 <= time_ns < _LAST_TIME:
            raise _broken(position, "its time is not one")
        self.hash = event_hash(
            self.hash,
            id=event.id,
            position=position,
            time_ns=time_ns,
            type=event.type,
            source=event.source,
            must_understand=event.must_understand,
            digest=event.data_digest,
        )
        self.position = position
        if self.hash != event.hash:
            raise _broken(position, "its hash does not follow from it and the event before")
        self._compare()

    def end(self, head: types_pb2.ChainHead) -> None:
        """The log ends here, and its head is said to be this."""
        if head.position != self.position:
            raise _broken(self.position, f"the log ends here, not at {head.position} as is said")
        if head.hash != self.hash:
            raise _broken(self.position, "it is not the head that is said")
        for position in self._expected:
            if position > self.position:
                raise _broken(self.position, f"the log ends here, before the noted {position}")

    def _compare(self) -> None:
        if self._expected.get(self.position, self.hash) != self.hash:
            raise _broken(self.position, "it is not the head that was noted")


def _broken(position: int, why: str) -> CarpalError:
    return refuse(
        Reason.CHAIN_BROKEN,
        f"the chain breaks at position {position}: {why}",
        position=str(position),
    )
