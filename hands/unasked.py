"""What hands say unasked, in the daemon's journal from when it is heard until it is in a log.

One id is one event, however often a hand says it. A hand may say a few at once and then one a
second; what is more, too large, or no event at all is counted, and the count said in one event of
the daemon's own, so that a log shows that something is missing.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carpal.errors import CarpalError
from carpal.ids import check_id, new_id
from carpal.v1 import hand_pb2 as pb
from hands.contract import Event
from hands.counts import Counts
from hands.journal import Journal

log = logging.getLogger(__name__)

DROPPED = "events_dropped"
"""Kind of the event that says how many were not taken."""
DATA_MAX = 16 * 1024
"""Bytes of an event's JSON."""
BURST = 20
"""Events a hand may say at once."""
RATE = 1.0
"""And how many a second after those."""
WAITING_MAX = 256
"""Of one hand that no log has yet."""
_KNOWN = 1000
"""Ids of a hand, the newest, that are known again once a log has them."""
_BATCH = 64
_BATCH_BYTES = 256 * 1024
_KIND = re.compile(r"[a-z0-9._-]{1,64}")
_OURS = (DROPPED, "returned")
"""Kinds of the daemon's and the brain's own."""
_LOOK = 0.5
"""Seconds between looks whether a count may be told."""


class Row(NamedTuple):
    """One event that no log has yet."""

    hand_id: str
    event_id: str
    kind: str
    data: bytes
    """JSON."""
    time: float
    """Unix time at which it was heard."""

    def message(self, shares: list[str], passed: Callable[[str], str]) -> pb.EventsResponse:
        """As it leaves, to who has a share; `passed` makes of a text what may leave of it."""
        said = pb.EventsResponse(
            hand_id=self.hand_id,
            event_id=self.event_id,
            kind=self.kind,
            data=json.dumps(_passed(json.loads(self.data), passed)).encode(),
            session_ids=shares,
        )
        said.time.FromNanoseconds(int(self.time * 1e9))
        return said


@dataclass
class _Hand:
    """How much a hand said of late."""

    tokens: float
    at: float
    event_id: str = ""
    """Of the event that will say what was dropped; empty while nothing was."""
    dropped: dict[str, int] = field(default_factory=dict)


class Unasked:
    """All that the hands of one daemon said, and no log has."""

    def __init__(
        self,
        journal: Journal,
        clock: Callable[[], float] = time.monotonic,
        counts: Counts | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._counts = counts or Counts()
        self._left: set[tuple[str, str]] = set()
        """Those that left the machine, and that no log is known to have yet."""
        self._hands: dict[str, _Hand] = {}
        self._came = asyncio.Event()
        if journal.ask("SELECT 1 FROM unasked WHERE state = 'counting' LIMIT 1"):
            # The daemon that counted died: what it had counted first is told.
            told = ("UPDATE unasked SET state = 'waiting' WHERE state = 'counting'", ())
            journal.unasked("counted", told)

    def take(self, hand_id: str, event: Event) -> None:
        """Journal an event, once; or count it as dropped."""
        why, data = _fit(event)
        if why:
            self._drop(hand_id, why)
            return
        known = "SELECT 1 FROM unasked WHERE hand_id = ? AND event_id = ?"
        if self._journal.ask(known, hand_id, event.event_id):
            return
        if not self._token(hand_id) or self._waiting(hand_id) >= WAITING_MAX:
            self._drop(hand_id, "too_many")
            return
        self._tell(hand_id)
        self._counts.events += 1
        self._insert("heard", Row(hand_id, event.event_id, event.kind, data, time.time()))

    def waiting(self, hand_ids: Sequence[str] = ()) -> list[Row]:
        """The oldest that no log has, of these hands or of all."""
        for hand_id in list(self._hands):
            self._tell(hand_id)
        places = ", ".join("?" for _ in hand_ids)
        of = f" AND hand_id IN ({places})" if hand_ids else ""
        query = (
            "SELECT hand_id, event_id, kind, data, time FROM unasked"  # noqa: S608 - our own words
            f" WHERE state = 'waiting'{of} ORDER BY number LIMIT {_BATCH}"
        )
        rows: list[Row] = []
        size = 0
        for each in self._journal.ask(query, *hand_ids):
            size += len(each[3])
            if rows and size > _BATCH_BYTES:
                break
            rows.append(Row(*each))
        return rows

    def settle(self, keys: Iterable[tuple[str, str]]) -> None:
        """Logs have these: only their ids stay, to be known again."""
        for hand_id, event_id in keys:
            self._left.discard((hand_id, event_id))
            freed = (
                "UPDATE unasked SET state = 'told', data = NULL"
                " WHERE hand_id = ? AND event_id = ? AND state = 'waiting'",
                (hand_id, event_id),
            )
            old = (
                "DELETE FROM unasked WHERE hand_id = ? AND state = 'told' AND number <= (SELECT"
                " number FROM unasked WHERE hand_id = ? AND state = 'told'"
                " ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (hand_id, hand_id, _KNOWN),
            )
            self._journal.unasked("acknowledged", freed, old)

    def waits(self, row: Row) -> bool:
        """Whether no log has it still, and its hand was not released since."""
        waiting = "SELECT 1 FROM unasked WHERE hand_id = ? AND event_id = ? AND state = 'waiting'"
        return bool(self._journal.ask(waiting, row.hand_id, row.event_id))

    def leaves(self, row: Row) -> bool:
        """It leaves the machine; whether for the first time that this daemon knows of."""
        key = (row.hand_id, row.event_id)
        if key in self._left:
            return False
        self._left.add(key)
        return True

    def withhold(self, row: Row) -> None:
        """It must not leave: no log gets it, and it is counted as dropped."""
        self.settle([(row.hand_id, row.event_id)])
        self._drop(row.hand_id, "redacted")

    async def more(self, hand_ids: Sequence[str], seconds: float) -> list[Row]:
        """As `waiting`, once there is some; none after so many seconds without."""
        end = self._clock() + seconds
        while not (rows := self.waiting(hand_ids)):
            left = end - self._clock()
            if left <= 0:
                break
            self._came.clear()
            counting = any(hand.event_id for hand in self._hands.values())
            try:
                async with asyncio.timeout(min(left, _LOOK) if counting else left):
                    await self._came.wait()
            except TimeoutError:
                continue
        return rows

    def ended(self, hand_id: str) -> None:
        """The hand says no more: what was counted of it is told."""
        self._tell(hand_id, now=True)
        self._hands.pop(hand_id, None)

    def released(self, hand_id: str) -> None:
        """The journal has nothing of the hand any more, and nothing comes."""
        self._hands.pop(hand_id, None)
        self._left = {key for key in self._left if key[0] != hand_id}

    def _waiting(self, hand_id: str) -> int:
        count = "SELECT count(*) FROM unasked WHERE hand_id = ? AND state = 'waiting'"
        return int(self._journal.ask(count, hand_id)[0][0])

    def _hand(self, hand_id: str) -> _Hand:
        now = self._clock()
        hand = self._hands.setdefault(hand_id, _Hand(BURST, now))
        hand.tokens = min(BURST, hand.tokens + (now - hand.at) * RATE)
        hand.at = now
        return hand

    def _token(self, hand_id: str) -> bool:
        hand = self._hand(hand_id)
        if hand.tokens < 1:
            return False
        hand.tokens -= 1
        return True

    def _drop(self, hand_id: str, why: str) -> None:
        hand = self._hand(hand_id)
        hand.dropped[why] = hand.dropped.get(why, 0) + 1
        self._counts.events_dropped += 1
        if not hand.event_id:  # at once, so that a log hears of it whatever is killed
            hand.event_id = new_id("drop")
            log.warning("what a hand says is dropped", extra={"hand_id": hand_id, "why": why})
            data = json.dumps(hand.dropped).encode()
            self._insert("dropped", Row(hand_id, hand.event_id, DROPPED, data, time.time()))

    def _tell(self, hand_id: str, *, now: bool = False) -> None:
        """Let go what says how many were dropped, once the hand may say something again."""
        hand = self._hand(hand_id)
        if not hand.event_id or (hand.tokens < 1 and not now):
            return
        told = (
            "UPDATE unasked SET state = 'waiting', data = ? WHERE hand_id = ? AND event_id = ?",
            (json.dumps(hand.dropped).encode(), hand_id, hand.event_id),
        )
        self._journal.unasked("counted", told)
        hand.event_id, hand.dropped = "", {}
        self._came.set()

    def _insert(self, step: str, row: Row) -> None:
        state = "waiting" if step == "heard" else "counting"
        new = (
            "INSERT INTO unasked (hand_id, event_id, kind, data, time, state)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (*row, state),
        )
        self._journal.unasked(step, new)
        self._came.set()


def _passed(value: Any, passed: Callable[[str], str]) -> Any:
    match value:
        case str():
            return passed(value)
        case list():
            return [_passed(each, passed) for each in value]
        case dict():
            return {passed(key): _passed(each, passed) for key, each in value.items()}
        case int() | float():
            written = json.dumps(value)
            return value if (told := passed(written)) == written else told
    return value


def _fit(event: Event) -> tuple[str, bytes]:
    """Why an event cannot be one, or its data as JSON."""
    try:
        check_id(event.event_id, "event_id")
        data = json.dumps(dict(event.data), ensure_ascii=False, allow_nan=False).encode()
    except (CarpalError, TypeError, ValueError, RecursionError):
        return "malformed", b""
    if not _KIND.fullmatch(event.kind) or event.kind in _OURS:
        return "malformed", b""
    return ("too_large", b"") if len(data) > DATA_MAX else ("", data)
