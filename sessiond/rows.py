"""What the store holds, as immutable rows. Pure data.

Rows are frozen so that the writer can hand what it committed to the event
loop, and keep it for the next transaction, without copies.
"""

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
    archived: int | None = None
    head: int = 0
    hash: bytes
    wake: int = 0
    processed: int = 0
    wake_at: int | None = None
    driven: bool = False
    """A lease was granted and has not ended. Its expiry ends it soon after it is due."""
    progressed: bool = False
    """The driver has appended something."""
    attempts: int = 0
    """Tries since the last progress."""
    failures: int = 0
    """Failures in a row, with progress or without: what the backoff grows by."""
    not_before: int | None = None
    """Steady nanoseconds; no offer before. Forgotten when the store starts."""
    parked: str = ""
    """Why it is parked; empty when it is not."""


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
