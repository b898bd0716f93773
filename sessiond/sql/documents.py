"""Documents in SQL: a row for each version, with a checksum of its data."""

from zlib import crc32

from carpal.errors import refuse
from carpal.status import Reason
from sessiond.sql.connection import Connection
from sessiond.sql.workspaces import Counts, Workspaces
from sessiond.store_documents import DocumentRow

_OF = (
    "SELECT version, time, data, checksum FROM documents "
    "WHERE workspace = $1 AND kind = $2 AND name = $3 "
)
_NEWEST = f"{_OF}ORDER BY version DESC LIMIT 1"
_VERSION = f"{_OF}AND version = $4"
_ADD = (
    "INSERT INTO documents (workspace, kind, name, version, time, data, checksum) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7)"
)
# From name to name on the index, so that it costs the names and not their versions.
_NAMES = """
WITH RECURSIVE found (name) AS (
  SELECT min(name) FROM documents WHERE workspace = $1 AND kind = $2 AND name > $3
  UNION ALL
  SELECT (SELECT min(d.name) FROM documents d
          WHERE d.workspace = $1 AND d.kind = $2 AND d.name > found.name)
  FROM found WHERE found.name IS NOT NULL
)
SELECT name, (SELECT max(d.version) FROM documents d
              WHERE d.workspace = $1 AND d.kind = $2 AND d.name = found.name)
FROM found WHERE name IS NOT NULL LIMIT $4
"""


class SqlDocumentReader:
    """Implements `store_documents.DocumentReader`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def newest(self, workspace: str, kind: str, name: str) -> DocumentRow | None:
        """See `store_documents.DocumentReader`."""
        return _one(self._connection, _NEWEST, workspace, kind, name)

    def version(self, workspace: str, kind: str, name: str, version: int) -> DocumentRow | None:
        """See `store_documents.DocumentReader`."""
        return _one(self._connection, _VERSION, workspace, kind, name, version)

    def names(self, workspace: str, kind: str, above: str, limit: int) -> list[tuple[str, int]]:
        """See `store_documents.DocumentReader`."""
        found = self._connection.execute(_NAMES, (workspace, kind, above, limit))
        return [(name, version) for name, version in found]


class SqlDocuments:
    """Implements `store_documents.Documents`."""

    def __init__(self, connection: Connection, transaction: Counts, workspaces: Workspaces) -> None:
        self._connection = connection
        self._transaction = transaction
        self._workspaces = workspaces

    def newest(self, workspace: str, kind: str, name: str) -> DocumentRow | None:
        """See `store_documents.Documents`."""
        self._workspaces.lock(workspace)
        return _one(self._connection, _NEWEST, workspace, kind, name)

    def version(self, workspace: str, kind: str, name: str, version: int) -> DocumentRow | None:
        """See `store_documents.Documents`."""
        return _one(self._connection, _VERSION, workspace, kind, name, version)

    def add(self, row: DocumentRow) -> None:
        """See `store_documents.Documents`."""
        self._transaction.writes += 1
        key = (row.workspace, row.kind, row.name, row.version)
        self._connection.execute(_ADD, (*key, row.time, row.data, crc32(row.data)))


def _one(
    connection: Connection, statement: str, workspace: str, kind: str, name: str, *version: int
) -> DocumentRow | None:
    found = connection.execute(statement, (workspace, kind, name, *version))
    if not found:
        return None
    number, time, stored, checksum = found[0]
    data = bytes(stored)
    if crc32(data) != checksum:
        raise refuse(
            Reason.DATA_CORRUPT,
            f"the store is damaged: {kind} {name!r} version {number} is not what was written",
            kind=kind,
            name=name,
        )
    return DocumentRow(
        workspace=workspace, kind=kind, name=name, version=number, time=time, data=data
    )
