"""A row for each workspace that has blobs or documents: its lock, and what its blobs weigh.

Where several processes write one database, whoever changes a workspace's blobs or documents
locks this row first, so that what it read stays so until it commits.
"""

from collections.abc import Iterable
from typing import Protocol

from sessiond.sql.connection import Connection, marks, padded, row_marks

_BYTES = "SELECT blob_bytes FROM workspaces WHERE name = $1"
_ADD = (
    "INSERT INTO workspaces (name, blob_bytes) VALUES ($1, $2) ON CONFLICT (name) "
    "DO UPDATE SET blob_bytes = workspaces.blob_bytes + excluded.blob_bytes"
)


class Counts(Protocol):
    """What is needed of the transaction beside its connection."""

    wall: int
    writes: int


class Workspaces:
    """Of one write transaction."""

    def __init__(self, connection: Connection, *, sole_writer: bool) -> None:
        self._connection = connection
        self._sole_writer = sole_writer
        self._locked: set[str] = set()

    def begin(self, names: Iterable[str]) -> None:
        """A new transaction: lock what its jobs will change, in order."""
        if self._sole_writer:
            return
        self._locked.clear()
        self._lock(set(names))

    def lock(self, name: str) -> None:
        """Lock one, unless it is."""
        self._lock({name})

    def blob_bytes(self, name: str) -> int:
        """Declared bytes of its blobs."""
        found = self._connection.execute(_BYTES, (name,))
        return int(found[0][0]) if found else 0

    def add_blob_bytes(self, name: str, size: int) -> None:
        """So many more, or fewer."""
        self._connection.execute(_ADD, (name, size))

    def _lock(self, names: set[str]) -> None:
        if self._sole_writer:
            return
        for run in padded(sorted(names - self._locked)):
            # In order: of two who add the same names one waits, and nobody for ever.
            self._connection.execute(
                f"INSERT INTO workspaces (name) VALUES {row_marks(len(run), 1)} "  # noqa: S608
                "ON CONFLICT (name) DO NOTHING",
                run,
            )
            self._connection.execute(
                f"SELECT name FROM workspaces WHERE name IN ({marks(len(run))}) "  # noqa: S608
                f"ORDER BY name{self._connection.lock_rows}",
                run,
            )
            self._locked.update(run)
