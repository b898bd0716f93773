"""Blobs in SQL: one row for a blob, and one for each piece of its bytes, with a checksum.

Numbers of rows may be given anew, so a dropped blob keeps its row until its last piece is gone.
"""

from zlib import crc32

import msgspec

from carpal.errors import refuse
from carpal.status import Reason
from sessiond.sql.connection import Connection
from sessiond.sql.workspaces import Counts, Workspaces
from sessiond.store_blobs import BlobRow, BlobState

_FIND = (
    "SELECT number, size, media_type, held, state, time FROM blobs "
    "WHERE workspace = $1 AND digest = $2 AND state < 2"
)
_ADD = (
    "INSERT INTO blobs (workspace, digest, size, media_type, held, state, time) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING number"
)
_ADD_PIECE = "INSERT INTO blob_chunks (blob, start, data, checksum) VALUES ($1, $2, $3, $4)"
_GREW = "UPDATE blobs SET held = $1, time = $2 WHERE number = $3"
_STATE = "UPDATE blobs SET state = $1 WHERE number = $2"
_STALLED = (
    "SELECT number, workspace FROM blobs WHERE state = 0 AND time < $1 ORDER BY time LIMIT $2"
)
_DROP_STALLED = (
    "UPDATE blobs SET state = 2 WHERE number = $1 AND state = 0 AND time < $2 RETURNING size"
)
_DROPPED = "SELECT number FROM blobs WHERE state = 2 ORDER BY number LIMIT 1"
_REMOVE_PIECES = (
    "DELETE FROM blob_chunks WHERE blob = $1 AND start IN "
    "(SELECT start FROM blob_chunks WHERE blob = $1 ORDER BY start LIMIT $2) RETURNING start"
)
_REMOVE = "DELETE FROM blobs WHERE number = $1"
_PIECE = (
    "SELECT start, data, checksum FROM blob_chunks "
    "WHERE blob = $1 AND start <= $2 ORDER BY start DESC LIMIT 1"
)


class SqlBlobs:
    """Implements `store_blobs.Blobs`."""

    def __init__(self, connection: Connection, transaction: Counts, workspaces: Workspaces) -> None:
        self._connection = connection
        self._transaction = transaction
        self._workspaces = workspaces

    def find(self, workspace: str, digest: bytes) -> BlobRow | None:
        """See `store_blobs.Blobs`."""
        self._workspaces.lock(workspace)
        return _find(self._connection, workspace, digest)

    def total(self, workspace: str) -> int:
        """See `store_blobs.Blobs`."""
        self._workspaces.lock(workspace)
        return self._workspaces.blob_bytes(workspace)

    def add(self, row: BlobRow) -> BlobRow:
        """See `store_blobs.Blobs`."""
        self._transaction.writes += 1
        row = msgspec.structs.replace(row, time=self._transaction.wall)
        self._workspaces.add_blob_bytes(row.workspace, row.size)
        card = (row.workspace, row.digest, row.size, row.media_type)
        found = self._connection.execute(_ADD, (*card, row.held, int(row.state), row.time))
        return msgspec.structs.replace(row, number=found[0][0])

    def add_data(self, row: BlobRow, data: bytes) -> BlobRow:
        """See `store_blobs.Blobs`."""
        self._transaction.writes += 1
        self._connection.execute(_ADD_PIECE, (row.number, row.held, data, crc32(data)))
        row = msgspec.structs.replace(row, held=row.held + len(data), time=self._transaction.wall)
        self._connection.execute(_GREW, (row.held, row.time, row.number))
        return row

    def complete(self, row: BlobRow) -> BlobRow:
        """See `store_blobs.Blobs`."""
        self._transaction.writes += 1
        self._connection.execute(_STATE, (int(BlobState.COMPLETE), row.number))
        return msgspec.structs.replace(row, state=BlobState.COMPLETE)

    def drop(self, row: BlobRow) -> None:
        """See `store_blobs.Blobs`."""
        self._transaction.writes += 1
        self._connection.execute(_STATE, (int(BlobState.DROPPED), row.number))
        self._workspaces.add_blob_bytes(row.workspace, -row.size)

    def drop_unfinished(self, before: int, limit: int) -> int:
        """See `store_blobs.Blobs`."""
        stalled = self._connection.execute(_STALLED, (before, limit))
        dropped = 0
        for number, workspace in sorted(stalled, key=lambda found: (found[1], found[0])):
            self._workspaces.lock(workspace)
            # It may have grown while this waited for the lock.
            for (size,) in self._connection.execute(_DROP_STALLED, (number, before)):
                self._transaction.writes += 1
                self._workspaces.add_blob_bytes(workspace, -size)
                dropped += 1
        return dropped

    def purge(self, limit: int) -> bool:
        """See `store_blobs.Blobs`."""
        dropped = self._connection.execute(_DROPPED + self._connection.lock_rows)
        if not dropped:
            return False
        self._transaction.writes += 1
        if len(self._connection.execute(_REMOVE_PIECES, (dropped[0][0], limit))) < limit:
            self._connection.execute(_REMOVE, dropped[0])
        return bool(self._connection.execute(_DROPPED))


class SqlBlobReader:
    """Implements `store_blobs.BlobReader`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, workspace: str, digest: bytes) -> BlobRow | None:
        """See `store_blobs.BlobReader`."""
        return _find(self._connection, workspace, digest)

    def dropped(self) -> bool:
        """See `store_blobs.BlobReader`."""
        return bool(self._connection.execute(_DROPPED))

    def piece(self, row: BlobRow, offset: int) -> bytes:
        """See `store_blobs.BlobReader`."""
        for start, stored, checksum in self._connection.execute(_PIECE, (row.number, offset)):
            data = bytes(stored)
            if crc32(data) == checksum and offset < start + len(data):
                return data[offset - start :]
        raise refuse(
            Reason.DATA_CORRUPT,
            f"the store is damaged: blob {row.digest.hex()} is not what was written at {offset}",
            digest=row.digest.hex(),
        )


def _find(connection: Connection, workspace: str, digest: bytes) -> BlobRow | None:
    found = connection.execute(_FIND, (workspace, digest))
    if not found:
        return None
    number, size, media_type, held, state, time = found[0]
    return BlobRow(
        number=number,
        workspace=workspace,
        digest=digest,
        size=size,
        media_type=media_type,
        held=held,
        state=BlobState(state),
        time=time,
    )
