"""Redaction and removal in SQL: the two ways in which an event's bytes may go.

Events of a tombstone are removed newest first, so that what is left is always a prefix,
and down to the last position that a fork shares.
"""

from typing import Protocol

from sessiond.rows import EventRow, Redaction, SessionRow
from sessiond.sql.connection import Connection
from sessiond.sql.spans import ANY, spans_of

PURGE_EVENTS = 1_000
PURGE_BYTES = 8 * 1024 * 1024
"""Of data, removed in one transaction; one event goes whatever its size."""

_REDACT = (
    "INSERT INTO redactions (session, position, redacted_by, time, reason) "
    "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (session, position) DO NOTHING"
)
_REDACTED = "SELECT redacted_by, time, reason FROM redactions WHERE session = $1 AND position = $2"
_ERASE = "UPDATE events SET data = NULL WHERE id = $1 AND session = $2 AND data IS NOT NULL"

_DUE = "SELECT session FROM purges WHERE session = $1"
_PURGE = "INSERT INTO purges (session) VALUES ($1) ON CONFLICT (session) DO NOTHING"
_SHARED = "SELECT coalesce(max(upto), 0) FROM lineage WHERE source = $1"
_NEWEST = (
    "SELECT position, coalesce(length(data), 0) FROM events "
    "WHERE chunk = $1 AND session = $2 AND position > $3 ORDER BY position DESC LIMIT $4"
)
_REMOVE = "DELETE FROM events WHERE chunk = $1 AND session = $2 AND position > $3"
_REMOVE_SPANS = "DELETE FROM spans WHERE session = $1 AND first > $2"
_REMOVE_REDACTIONS = "DELETE FROM redactions WHERE session = $1 AND position > $2"
_REMOVE_UPDATES = "DELETE FROM updates WHERE session = $1"
_PURGE_SOURCES = (
    "INSERT INTO purges (session) SELECT number FROM sessions WHERE deleted IS NOT NULL "
    "AND number IN (SELECT source FROM lineage WHERE fork = $1) ORDER BY number DESC "
    "ON CONFLICT (session) DO UPDATE SET session = excluded.session"
)
"""The update does nothing but wait for whoever is about to end that purge."""
_REMOVE_LINEAGE = "DELETE FROM lineage WHERE fork = $1"
_PURGED = "DELETE FROM purges WHERE session = $1"

_PURGES = (
    "SELECT s.session_id FROM purges p JOIN sessions s ON s.number = p.session "
    "ORDER BY p.session LIMIT $1"
)
_STALLED = (
    "SELECT session_id FROM sessions WHERE importing = 1 AND deleted IS NULL AND changed < $1 "
    "ORDER BY changed LIMIT $2"
)
_AGED = (
    "SELECT number, session_id FROM sessions WHERE workspace = $1 AND number > $2 "
    "AND changed < $3 AND deleted IS NULL AND importing = 0 AND driven = 0 "
    "ORDER BY number LIMIT $4"
)
_RULED = (
    "SELECT DISTINCT workspace FROM documents WHERE kind = 'retention' AND name = 'default' "
    "ORDER BY workspace"
)


class Pending(Protocol):
    """What erasing needs of the transaction: it holds rows that are not on disk yet."""

    writes: int
    erases: bool

    def erase(self, number: int, event: EventRow, redaction: Redaction) -> EventRow:
        """Forget an event's data in memory."""

    def unwritten(self, session: SessionRow) -> bool:
        """Whether the session or its log was changed in this transaction."""

    def remove_session(self, session: SessionRow) -> None:
        """Remove a session's row."""


class SqlEraser:
    """Implements `store_erasing.Eraser`."""

    def __init__(self, connection: Connection, transaction: Pending) -> None:
        self._connection = connection
        self._transaction = transaction

    def redact(self, session: SessionRow, event: EventRow, redaction: Redaction) -> EventRow:
        """See `store_erasing.Eraser`."""
        number, position = session.holder(event.position), event.position
        self._note(number, position, redaction)
        self._connection.execute(_ERASE, (event.id, number))
        noted = self._connection.execute(_REDACTED, (number, position))[0]
        return self._transaction.erase(number, event, Redaction(*noted))

    def keep_redaction(self, session: SessionRow, event: EventRow) -> None:
        """See `store_erasing.Eraser`."""
        if event.redaction is not None:
            self._note(session.number, event.position, event.redaction)

    def begin_purge(self, session: SessionRow) -> None:
        """See `store_erasing.Eraser`."""
        self._transaction.writes += 1
        self._connection.execute(_PURGE, (session.number,))

    def purge(self, session: SessionRow) -> bool:
        """See `store_erasing.Eraser`."""
        transaction, number = self._transaction, session.number
        if transaction.unwritten(session):
            return False  # it was deleted in this very transaction: not yet on disk
        if not self._connection.execute(_DUE + self._connection.lock_rows, (number,)):
            return True
        transaction.writes += 1
        shared = self._connection.execute(_SHARED, (number,))[0][0]
        above = self._remove_newest(number, shared)
        transaction.erases = transaction.erases or above is not None
        if above is not None and above > shared:
            return False
        for statement in (_REMOVE_UPDATES, _PURGE_SOURCES, _REMOVE_LINEAGE, _PURGED):
            self._connection.execute(statement, (number,))
        if session.importing:
            transaction.remove_session(session)
        return True

    def _note(self, number: int, position: int, redaction: Redaction) -> None:
        self._transaction.writes += 1
        self._connection.execute(
            _REDACT, (number, position, redaction.by, redaction.time, redaction.reason)
        )

    def _remove_newest(self, number: int, shared: int) -> int | None:
        """Remove the newest events above `shared`, as many as go in one step.

        All above the position returned are gone; None when there were none.
        """
        above: int | None = None
        events = size = 0
        full = False
        for chunk, low, _ in spans_of(self._connection, number, shared, ANY, newest_first=True):
            lowest: int | None = None
            newest = self._connection.execute(_NEWEST, (chunk, number, low, PURGE_EVENTS - events))
            for position, length in newest:
                size += length
                full = above is not None and size > PURGE_BYTES
                if full:
                    break
                above = lowest = position - 1
                events += 1
            if lowest is not None:
                self._connection.execute(_REMOVE, (chunk, number, lowest))
            if full or events >= PURGE_EVENTS:
                break
        if above is not None:
            self._connection.execute(_REMOVE_REDACTIONS, (number, above))
            self._connection.execute(_REMOVE_SPANS, (number, above))
        return above


class SqlErasable:
    """Implements `store_erasing.Erasable`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def purges(self, limit: int) -> list[str]:
        """See `store_erasing.Erasable`."""
        return [session_id for (session_id,) in self._connection.execute(_PURGES, (limit,))]

    def stalled(self, before: int, limit: int) -> list[str]:
        """See `store_erasing.Erasable`."""
        found = self._connection.execute(_STALLED, (before, limit))
        return [session_id for (session_id,) in found]

    def aged(self, workspace: str, before: int, above: int, limit: int) -> list[tuple[int, str]]:
        """See `store_erasing.Erasable`."""
        found = self._connection.execute(_AGED, (workspace, above, before, limit))
        return [(number, session_id) for number, session_id in found]

    def ruled(self) -> list[str]:
        """See `store_erasing.Erasable`."""
        return [workspace for (workspace,) in self._connection.execute(_RULED)]
