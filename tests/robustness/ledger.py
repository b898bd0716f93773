"""What a session's log must hold, as those know it who appended: told to, and compared with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verified import Verified

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

SAID_ITSELF = frozenset({"session.error", "session.status_idle"})
"""What sessiond appends when it parks a session whose drivers came to nothing."""


def data_of(id: str) -> bytes:
    """What every event of these tests holds: told from its id alone."""
    return id.encode() * 20


@dataclass
class Ledger:
    """One session, by what was sent and what was acknowledged."""

    session_id: str
    sent: dict[str, int] = field(default_factory=dict)
    """By the first letter of their ids, how many events were sent: a1, a2, … and b1, b2, …"""
    acked: dict[str, int] = field(default_factory=dict)
    """Event id → the position it was said to have."""
    epoch: int = 0
    """The highest that was granted."""
    processed: int = 0
    """The highest that was taken as such."""
    woken: int = 0
    """The position of the last acknowledged event that came with a wake."""

    def next(self, letter: str) -> str:
        """A new event id."""
        self.sent[letter] = self.sent.get(letter, 0) + 1
        return f"{letter}{self.sent[letter]}"

    def acknowledged(self, ids: Iterable[str], first: int) -> int:
        """These follow each other from a position on; how many of them are news."""
        news = 0
        for position, id in enumerate(ids, first):
            news += id not in self.acked
            assert self.acked.setdefault(id, position) == position, f"{id} has moved"
        return news

    def granted(self, epoch: int) -> None:
        """A lease was granted under an epoch, which no other ever had."""
        assert epoch > self.epoch, f"epoch {epoch} was granted after {self.epoch}"
        self.epoch = epoch

    async def check(self, stub: "SessionAsyncStub", seen: list[tuple[str, bytes]]) -> None:
        """Hold the log, and what a tail has seen of it, against all this."""
        got = await stub.GetSession(pb.GetSessionRequest(session_id=self.session_id))
        log = await whole(stub, self.session_id)
        chain = Verified(self.session_id)
        for event in log:
            chain.take(event)
        chain.end(got.session.head)
        positions = {event.id: event.position for event in log}
        assert len(positions) == len(log), "an event is there twice"
        lost = {id: at for id, at in self.acked.items() if positions.get(id) != at}
        assert not lost, f"acknowledged, and not there: {lost}"
        for letter, count in self.sent.items():
            # Each is sent in order, and the one before is there when the next one is.
            ours = [event.id for event in log if event.id.startswith(letter)]
            assert ours == [f"{letter}{n}" for n in range(1, len(ours) + 1)], "not as it was sent"
            assert len(ours) <= count
        for event in log:
            if event.id[0] in self.sent:
                assert event.data == data_of(event.id)
            else:
                assert event.type in SAID_ITSELF, f"who appended {event.type} {event.id}?"
        assert seen == [(event.id, event.hash) for event in log], "the tail saw another log"
        assert got.session.processed >= self.processed
        assert got.session.wake >= self.woken
        assert got.session.lease.epoch >= self.epoch


async def whole(stub: "SessionAsyncStub", session_id: str) -> list[types_pb2.Event]:
    """All of a log, slice by slice."""
    log: list[types_pb2.Event] = []
    more = True
    while more:
        request = pb.GetEventsRequest(session_id=session_id, after=len(log), limit=1000)
        answer = await stub.GetEvents(request)
        log += answer.events
        more = answer.more
    return log
