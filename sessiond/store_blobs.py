"""What a store must do for blobs: bytes by their SHA-256, that come piece by piece.

Part of `store`'s protocols. A blob that is dropped is gone at once; its bytes go in
bounded steps, since they may be many.
"""

from enum import IntEnum
from typing import Protocol

import msgspec


class BlobState(IntEnum):
    """How a blob stands. Numbers are stored: never reuse one."""

    UNFINISHED = 0
    COMPLETE = 1
    DROPPED = 2
    """Nobody finds it any more; its bytes are to go."""


class BlobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A blob without its bytes."""

    number: int = 0
    """The store's own key; 0 until it is stored."""
    workspace: str
    digest: bytes
    size: int
    """In bytes, as it was declared; true once complete."""
    media_type: str = ""
    held: int = 0
    """Bytes that are here: the first ones."""
    state: BlobState = BlobState.UNFINISHED
    time: int = 0
    """Of the last progress, in nanoseconds since 1970."""


class Blobs(Protocol):
    """The blobs of a write transaction."""

    def find(self, workspace: str, digest: bytes) -> BlobRow | None:
        """The blob, finished or not; nobody else changes it until the transaction ends."""

    def total(self, workspace: str) -> int:
        """Declared bytes of the workspace's blobs, finished or not."""

    def add(self, row: BlobRow) -> BlobRow:
        """Store a new blob without bytes; the answer has its number."""

    def add_data(self, row: BlobRow, data: bytes) -> BlobRow:
        """Store the bytes that follow those held."""

    def complete(self, row: BlobRow) -> BlobRow:
        """All its bytes are here and have its digest."""

    def drop(self, row: BlobRow) -> None:
        """Forget an unfinished blob."""

    def drop_unfinished(self, before: int, limit: int) -> int:
        """Forget up to `limit` unfinished blobs without progress since a wall time; how many."""

    def purge(self, limit: int) -> bool:
        """Remove up to `limit` pieces of one dropped blob; whether any blob is left to purge."""


class BlobReader(Protocol):
    """The same side of a reader."""

    def find(self, workspace: str, digest: bytes) -> BlobRow | None:
        """The blob, finished or not."""

    def dropped(self) -> bool:
        """Whether any blob is to be purged."""

    def piece(self, row: BlobRow, offset: int) -> bytes:
        """Some bytes from `offset` on, at least one; DATA_CORRUPT when not what was written."""
