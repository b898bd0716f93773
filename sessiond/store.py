"""What a store must do: the protocol that SQLite and PostgreSQL implement.

Rules (who may append, which epoch is stale) live in `append`, `sessions` and
`leases`, once for every store. A store keeps rows, commits them durably, and
refuses on its own to change or remove an event or to leave a gap.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sessiond.clock import Clock
from sessiond.rows import (
    Changes,
    EventRow,
    LeaseRow,
    Needs,
    SessionRow,
    Slice,
    SliceQuery,
)
from sessiond.store_blobs import BlobReader, Blobs
from sessiond.store_documents import DocumentReader, Documents
from sessiond.store_erasing import Erasable, Eraser


class StoreFull(Exception):
    """No room to write. The transaction is undone; the store goes on."""


class StoreBroken(Exception):
    """The store failed in a way that leaves its state unknown: stop, and start anew."""


class StoreCorrupt(StoreBroken):
    """What is on disk is not what was written. Names the file."""


class StoreUnavailable(Exception):
    """It cannot be reached now. Whether the last commit happened may be unknown; try again."""


class StoreConflict(StoreUnavailable):
    """Another process's transaction was in the way; this one is undone: run it again."""


class StoreRejects(Exception):
    """It takes no such value. The transaction is undone; the store goes on."""


REJECTED = "holds a character that this store does not take, such as NUL"
"""What whoever sends such a value is told."""


class Transaction(Protocol):
    """A write transaction as the rules see it. Used by one thread."""

    wall: int
    """Now: nanoseconds since 1970."""
    steady: int
    """Now, on the clock that never steps: nanoseconds since some start."""
    writes: int
    """How many writes were made so far; a refused request must have made none."""

    @property
    def eraser(self) -> Eraser:
        """Redaction and removal."""

    @property
    def blobs(self) -> Blobs:
        """Bytes by their digest."""

    @property
    def documents(self) -> Documents:
        """Versioned JSON."""

    def session(self, session_id: str) -> SessionRow | None:
        """The session, with what this transaction did to it."""

    def add_session(self, row: SessionRow) -> SessionRow:
        """Store a new session; the answer has its number."""

    def put_session(self, row: SessionRow) -> None:
        """Replace a session's row."""

    def find_event(self, session: SessionRow, event_id: str) -> EventRow | None:
        """The event of a session's log with that id, inherited ones too."""

    def event_at(self, session: SessionRow, position: int) -> EventRow | None:
        """The event at a position of a session's log, inherited ones too."""

    def add_events(self, session: SessionRow, events: Collection[EventRow]) -> None:
        """Store events that continue the session's positions."""

    def update_request(self, session: SessionRow, event_id: str) -> bytes | None:
        """Digest of the UpdateSession request that used this event id."""

    def add_update_request(self, session: SessionRow, event_id: str, digest: bytes) -> None:
        """Remember that digest."""

    def lease(self, resource: str) -> LeaseRow | None:
        """The newest lease of a resource."""

    def put_lease(self, row: LeaseRow) -> None:
        """Store the newest lease of a resource."""

    def due_leases(self, limit: int) -> list[LeaseRow]:
        """Leases that are LIVE by their row and past their expiry, oldest first."""

    def generation(self) -> int:
        """How often this log was restored from a backup: the high bits of every epoch."""


class Store(Protocol):
    """The one writer's side. Used by one thread; raises the errors above."""

    clock: Clock
    """By which leases expire: the store's own, where several processes share it."""

    def restart(self) -> None:
        """Give every live lease a full term and forget backoffs: the steady clock is new."""

    def begin(self, needs: Sequence[Needs] = ()) -> Transaction:
        """Open the write transaction, with what its jobs will look at loaded."""

    def commit(self) -> Changes:
        """Make it durable and say what changed."""

    def rollback(self) -> None:
        """Undo it."""

    @property
    def erasing(self) -> bool:
        """Whether bytes that were erased are still somewhere on its disk, until `maintain`
        could see to it. Read from other threads."""

    def abandon(self) -> None:
        """From another thread: stop waiting. What waits raises StoreUnavailable, now and later."""

    def maintain(self) -> None:
        """Between transactions: whatever keeps the store small."""

    def reader(self) -> "Reader":
        """A new read-only view, for another thread."""

    async def follow(
        self,
        changed: Callable[[Changes], None],
        tailed: Callable[[], Collection[str]],
        known: Changes,
    ) -> None:
        """Tell, until cancelled, what other processes changed in a store that they share.

        Called in the event loop; what this process committed may be told once more.
        `tailed` says which sessions' heads somebody waits for; `known` is all the work and
        all the live leases that were read before.
        """

    async def up_to_date(self) -> None:
        """Return once all that other processes committed before this call was told.

        At once where nobody else writes; StoreUnavailable when it takes too long.
        """

    def close(self) -> None:
        """Let go of the store."""


class Reader(Protocol):
    """A read-only view: sees each transaction whole. Used by one thread at a time."""

    @property
    def erasable(self) -> Erasable:
        """What there is to erase."""

    @property
    def blobs(self) -> BlobReader:
        """Bytes by their digest."""

    @property
    def documents(self) -> DocumentReader:
        """Versioned JSON."""

    def snapshot(self) -> AbstractContextManager[object]:
        """What is read in this block is of one moment."""

    def session(self, session_id: str) -> tuple[SessionRow, LeaseRow | None] | None:
        """A session and the newest lease on it; none when it is deleted or not imported yet."""

    def slice(self, session: SessionRow, query: SliceQuery) -> Slice:
        """Events of a session, as it was read in the same snapshot. Costs the slice."""

    def redacted(self, session: SessionRow, upto: int) -> int:
        """How many events of a log up to a position, inherited ones too, have lost their data."""

    def page(
        self,
        workspace: str,
        *,
        before: int,
        limit: int,
        archived: bool,
        labels: Mapping[str, str],
    ) -> list[tuple[SessionRow, LeaseRow | None]]:
        """A workspace's sessions with all the labels and numbers below `before`, newest first."""

    def with_work(self) -> list[SessionRow]:
        """Sessions, neither archived nor parked, with a wake to process or a time to wake at."""

    def live_leases(self) -> list[LeaseRow]:
        """Leases that are LIVE by their row."""

    def close(self) -> None:
        """Let go of the view."""
