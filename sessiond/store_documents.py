"""What a store must do for documents: small JSON texts of which every version is kept.

Part of `store`'s protocols.
"""

from typing import Protocol

import msgspec


class DocumentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document."""

    workspace: str
    kind: str
    name: str
    version: int
    """1, 2, 3, …"""
    time: int
    """Nanoseconds since 1970."""
    data: bytes
    """JSON."""


class DocumentReader(Protocol):
    """The documents of a reader."""

    def newest(self, workspace: str, kind: str, name: str) -> DocumentRow | None:
        """The newest version."""

    def version(self, workspace: str, kind: str, name: str, version: int) -> DocumentRow | None:
        """One version."""

    def names(self, workspace: str, kind: str, above: str, limit: int) -> list[tuple[str, int]]:
        """(name, newest version) of the documents with names above one, in the store's order."""


class Documents(Protocol):
    """The documents of a write transaction."""

    def newest(self, workspace: str, kind: str, name: str) -> DocumentRow | None:
        """The newest version; nobody else writes one until the transaction ends."""

    def version(self, workspace: str, kind: str, name: str, version: int) -> DocumentRow | None:
        """One version."""

    def add(self, row: DocumentRow) -> None:
        """Store the version after the newest."""
