"""What must be true of sessions, in a few lines: lists in memory, no batches, caches or SQL.

A fork copies its source's list, and shares the entries in it: what is redacted in one is in all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2
from sessiond.clock import SECOND
from sessiond.rows import Group, NewEvent
from sessiond.rules.append import is_inbox

Answer = int | Reason
TERM = 10 * SECOND


@dataclass(eq=False)
class Entry:
    """One event, wherever it is shared."""

    event: NewEvent
    redacted: bool = False

    @property
    def data(self) -> bytes:
        """What is left of it."""
        return b"" if self.redacted else self.event.data


@dataclass
class Model:
    """One session."""

    chain_id: str
    log: list[Entry] = field(default_factory=list)
    epoch: int = 0
    holder: str = ""
    expires: int = 0
    released: bool = True
    wake: int = 0
    processed: int = 0
    archived: bool = False
    deleted: bool = False

    def live(self, now: int) -> bool:
        """Whether somebody may drive it."""
        return not self.released and now < self.expires

    def held(self, who: Identity, epoch: int) -> bool:
        """Whether its newest lease was granted to this one, under this epoch."""
        return bool(self.epoch) and (epoch, who.uri) == (self.epoch, self.holder)

    def append(self, who: Identity, group: Group, now: int) -> Answer:
        """The position of the group's first event."""
        if self.deleted:
            return Reason.SESSION_NOT_FOUND
        if group.epoch is None:
            if not all(is_inbox(e.type) for e in group.events):
                return Reason.EPOCH_REQUIRED
        elif not self.held(who, group.epoch) or not self.live(now):
            return Reason.STALE_EPOCH
        log = list(self.log)
        for event in group.events:
            same = [entry.event for entry in log if entry.event.id == event.id]
            if same and same != [event]:
                return Reason.ID_REUSED
            if not same:
                log.append(Entry(event))
        if self.archived and len(log) > len(self.log):
            return Reason.SESSION_ARCHIVED
        ids = [entry.event.id for entry in log]
        last = max(ids.index(event.id) for event in group.events) + 1
        if group.wake and len(log) > len(self.log):
            self.wake = len(log)
        elif group.wake and not self.archived and last > max(self.wake, self.processed):
            self.wake = last
        self.log = log
        return 1 + ids.index(group.events[0].id)

    def acquire(self, who: Identity, now: int) -> Answer:
        """The new epoch."""
        if self.deleted:
            return Reason.SESSION_NOT_FOUND
        if self.archived:
            return Reason.SESSION_ARCHIVED
        if self.live(now) and self.holder != who.uri:
            return Reason.LEASE_HELD
        self.epoch += 1
        self.holder, self.expires, self.released = who.uri, now + TERM, False
        return self.epoch

    def renew(self, who: Identity, epoch: int, now: int) -> Answer:
        """The epoch."""
        if not self.held(who, epoch) or not self.live(now):
            return Reason.STALE_EPOCH
        self.expires = now + TERM
        return epoch

    def release(self, who: Identity, epoch: int, processed: int, now: int) -> Answer:
        """The epoch."""
        if not self.held(who, epoch):
            return Reason.STALE_EPOCH
        if self.deleted:
            return Reason.SESSION_NOT_FOUND
        if not self.released and not self.live(now):
            return Reason.STALE_EPOCH
        if not self.released:
            if processed > len(self.log):
                return Reason.INVALID_FIELD
            self.processed = max(self.processed, processed)
        self.released = True
        return epoch

    def archive(self, now: int) -> Answer:
        """Its head."""
        if self.deleted:
            return Reason.SESSION_NOT_FOUND
        if not self.archived and self.live(now):
            return Reason.LEASE_HELD
        self.archived = True
        return len(self.log)

    def delete(self, now: int) -> Answer:
        """Its head."""
        if not self.deleted and self.live(now):
            return Reason.LEASE_HELD
        if not self.deleted:
            self.deleted = True
            self.expires = min(self.expires, now)
        return len(self.log)

    def redact(self, position: int) -> Answer:
        """The position."""
        if self.deleted or not 1 <= position <= len(self.log):
            return Reason.SESSION_NOT_FOUND
        self.log[position - 1].redacted = True
        return position

    def fork(self, position: int, name: str) -> "Model | Reason":
        """A new session."""
        if self.deleted:
            return Reason.SESSION_NOT_FOUND
        if position > len(self.log):
            return Reason.POSITION_BEYOND_HEAD
        chain_id = self.chain_id if position else name
        return Model(chain_id, self.log[:position], processed=position)

    def restarted(self, now: int) -> None:
        """Every lease that nobody saw the end of has a full term."""
        if not self.deleted:
            self.expires = now + TERM

    def slice(self, request: session_pb2.GetEventsRequest) -> tuple[list[int], bool]:
        """Positions, and whether there are more in the order asked."""
        newest_first = request.order == types_pb2.EVENT_ORDER_NEWEST_FIRST
        found = [n for n, e in enumerate(self.log, 1) if _among(e.event.type, request.types)]
        anchor, limit = request.WhichOneof("anchor"), request.limit or 100
        if anchor == "around":
            half = limit // 2
            below = [n for n in found if n < request.around]
            above = [n for n in found if n >= request.around]
            near, more_above = above[: limit - half], len(above) > limit - half
            if half == 0:
                return near, more_above
            both = [*below[-half:], *near]
            return (both[::-1], len(below) > half) if newest_first else (both, more_above)
        if anchor == "after":
            found = [n for n in found if n > request.after]
        elif anchor == "before":
            found = [n for n in found if n < request.before]
        if newest_first:
            found.reverse()
        size = 0
        for count, position in enumerate(found):
            size += len(self.log[position - 1].data)
            if count == limit or (count and size > (request.max_bytes or 2**20)):
                return found[:count], True
        return found, False


def _among(type: str, types: Sequence[str]) -> bool:
    """Whether it is one of these types, or below one that ends in `.*`; all are when none is."""
    return not types or any(
        type == wanted or (wanted.endswith(".*") and type.startswith(wanted[:-1]))
        for wanted in types
    )
