"""What the store holds, as immutable rows. Pure data.

Rows are frozen so that the writer can hand what it committed to the event
loop, and keep it for the next transaction, without copies.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session without its log."""

    number: int = 0
    """The store's own key; 0 until it is stored."""
    session_id: str
    workspace: str
    title: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    request: bytes
    """Digest of the request that created it, so that a repeat is told from a clash."""
    created: int
    """Nanoseconds since 1970, as are all times but those called steady."""
    chain_id: str = ""
    """What the chain begins with: its own id, but on forks and imports."""
    forked_from: str = ""
    lineage: tuple[tuple[int, int], ...] = ()
    """On forks, (number of a session, position): whose events it shares, up to which position;
    oldest ancestor first, positions rising. Its own events are above the last."""
    imported_to: int = 0
    """On imports, the head it came with."""
    importing: bool = False
    """Not all of it is there yet, so it counts as not there at all."""
    archived: int | None = None
    deleted: int | None = None
    """A tombstone: only its id is left, and what forks share."""
    head: int = 0
    hash: bytes
    changed: int = 0
    """When the log last grew."""
    wake: int = 0
    processed: int = 0
    wake_at: int | None = None
    driven: bool = False
    """A lease was granted and has not ended. Its expiry ends it soon after it is due."""
    progressed: bool = False
    """The driver has appended what is progress."""
    chunk: int = -1
    """Of the store's index, where its newest events are; -1 while it has none of its own."""
    attempts: int = 0
    """Tries since the last progress."""
    failures: int = 0
    """Failures in a row, with progress or without: what the backoff grows by."""
    not_before: int | None = None
    """Steady nanoseconds; no offer before. Forgotten when the store starts."""
    parked: str = ""
    """Why it is parked; empty when it is not."""

    @property
    def inherited(self) -> int:
        """The last position that it shares with an ancestor; 0 when it is no fork."""
        return self.lineage[-1][1] if self.lineage else 0

    def holder(self, position: int) -> int:
        """Number of the session that holds the event at a position of this one's log."""
        return next((source for source, upto in self.lineage if position <= upto), self.number)

    def has(self, number: int, position: int) -> bool:
        """Whether the event of session `number` at `position` is in this one's log."""
        if number == self.number:
            return True
        return any(number == source and position <= upto for source, upto in self.lineage)

    @property
    def resource(self) -> str:
        """Of its lease."""
        return f"session/{self.session_id}"


class LeaseState(IntEnum):
    """How a lease stands. Numbers are stored: never reuse one."""

    LIVE = 0
    RELEASED = 1
    EXPIRED = 2


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the lease table: the newest lease of a resource."""

    resource: str
    epoch: int
    holder: str
    """SPIFFE URI; stays when the lease has ended, so that a repeated release is known."""
    address: str = ""
    workspace: str = ""
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    term: int
    """Nanoseconds."""
    expires: int
    """Steady nanoseconds."""
    state: LeaseState = LeaseState.LIVE

    def live(self, steady: int) -> bool:
        """Whether its holder may still act."""
        return self.state is LeaseState.LIVE and steady < self.expires


class Redaction(msgspec.Struct, frozen=True):
    """Who erased an event's data, when and why."""

    by: str
    """SPIFFE URI."""
    time: int
    reason: str


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """One immutable entry of a log."""

    id: str
    position: int
    time: int
    type: str
    source: str
    must_understand: bool
    data: bytes
    digest: bytes
    hash: bytes
    redaction: Redaction | None = None


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to append: what the appender chooses."""

    id: str
    type: str
    data: bytes
    must_understand: bool = False


class Group(msgspec.Struct, frozen=True):
    """One session's events, to append all or none."""

    session_id: str
    events: tuple[NewEvent, ...]
    epoch: int | None = None
    wake: bool = False


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a job will look at: a store loads it for all jobs of a batch at once.

    What is not named is found all the same, one by one. On a store that several
    processes write, naming it is also what keeps them from waiting for each other in a ring.
    """

    sessions: tuple[str, ...] = ()
    """Session ids."""
    leases: tuple[str, ...] = ()
    """Resources."""
    events: tuple[str, ...] = ()
    """Event ids."""
    workspaces: tuple[str, ...] = ()
    """Whose blobs or documents it changes."""
    due: bool = False
    """Leases past their expiry, and their sessions."""


NOTHING = Needs()


class SliceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to read: `low < position < high`, some types, bounded."""

    low: int = 0
    high: int = 2**63 - 1
    newest_first: bool = False
    types: tuple[str, ...] = ()
    """Exact types, or prefixes that end in `.*`; empty means all."""
    limit: int = 100
    max_bytes: int = 2 * 1024 * 1024
    """Of data; the first event is read whatever its size."""


class Slice(msgspec.Struct, frozen=True):
    """What a query found."""

    events: list[EventRow]
    head: int
    """The log's head when this was read."""
    more: bool
    """More events match beyond these, in the order asked."""


class Changes(msgspec.Struct, frozen=True):
    """What a transaction committed, for those who watch."""

    sessions: tuple[SessionRow, ...] = ()
    leases: tuple[LeaseRow, ...] = ()
    events: Mapping[str, Sequence[EventRow]] = {}
    """By session id. What another process appended is not here: its session is above."""
    erased: bool = False
    """Some event's data is gone: none that is still at hand from before may be shown. Then
    `events` is empty."""
