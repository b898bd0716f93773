"""The write transaction on SQLite: changed in memory, written in one go before the commit.

A session that many groups of one batch append to is updated once. Rows are
kept from one transaction to the next, which is safe because this connection is
the only writer and rows are immutable; a rollback forgets them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from sessiond.rows import Changes, EventRow, LeaseRow, SessionRow
from sessiond.sqlite_rows import (
    CARD_COLUMNS,
    EVENT_COLUMNS,
    LEASE_COLUMNS,
    SESSION_COLUMNS,
    STATE_COLUMNS,
    card_values,
    lease_row,
    lease_values,
    session_row,
    state_values,
)
from sessiond.store import StoreBroken, StoreFull

_KEPT_ROWS = 10_000
"""Rows kept between transactions, at most; about 1 KB each."""


def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" * len(columns.split(", ")))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608 - our own names


def _update(table: str, columns: str, key: str) -> str:
    changes = ", ".join(f"{column} = ?" for column in columns.split(", "))
    return f"UPDATE {table} SET {changes} WHERE {key} = ?"  # noqa: S608 - our own names


_INSERT_EVENT = _insert("events", f"session, {EVENT_COLUMNS}")
_FIND_EVENT = f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND id = ?"  # noqa: S608
_SESSION = f"SELECT {SESSION_COLUMNS} FROM sessions WHERE session_id = ?"  # noqa: S608
_INSERT_SESSION = _insert("sessions", f"{CARD_COLUMNS}, {STATE_COLUMNS}")
_UPDATE_STATE = _update("sessions", STATE_COLUMNS, "number")
_UPDATE_CARD = _update("sessions", CARD_COLUMNS, "number")
_UPDATE_REQUEST = "SELECT request FROM updates WHERE session = ? AND event_id = ?"
_LEASE = f"SELECT {LEASE_COLUMNS} FROM leases WHERE resource = ?"  # noqa: S608
_NAME = "SELECT number FROM names WHERE text = ?"
_TEXT = "SELECT text FROM names WHERE number = ?"
_PUT_LEASE = _insert("leases", LEASE_COLUMNS).replace("INSERT", "INSERT OR REPLACE", 1)
_DUE = "SELECT resource FROM leases WHERE state = 0 AND expires <= ? ORDER BY expires LIMIT ?"


class SqliteTransaction:
    """Implements `store.Transaction`; one object for the life of the connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.wall = 0
        self.steady = 0
        self.writes = 0
        self._sessions: dict[str, SessionRow] = {}
        self._leases: dict[str, LeaseRow] = {}
        self._names: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._stored_sessions: dict[str, SessionRow] = {}
        """The rows on disk of sessions that this transaction changed."""
        self._new_events: dict[tuple[int, str], EventRow] = {}
        """By session and id, in the order they are to be written."""
        self._changed_leases: dict[str, LeaseRow] = {}

    def begin(self, wall: int, steady: int) -> None:
        """Start; nothing is written before the first write."""
        self.wall, self.steady, self.writes = wall, steady, 0
        self._execute("BEGIN IMMEDIATE")

    def commit(self) -> Changes:
        """Write what changed and make it durable."""
        changed = tuple(self._sessions[session_id] for session_id in self._stored_sessions)
        self._write_sessions(changed)
        self._write_events()
        leases = tuple(self._changed_leases.values())
        self._execute("COMMIT")
        self._stored_sessions.clear()
        self._new_events.clear()
        self._changed_leases.clear()
        for kept in (self._sessions, self._leases, self._names, self._texts):
            if len(kept) > _KEPT_ROWS:
                kept.clear()
        return Changes(changed, leases)

    def rollback(self) -> None:
        """Undo, and forget every row: memory must not know what the disk does not."""
        self.forget()
        if self._connection.in_transaction:  # a full disk may have undone it already
            self._execute("ROLLBACK")

    def forget(self) -> None:
        """Know nothing of what is on disk."""
        for kept in (
            self._sessions,
            self._leases,
            self._names,
            self._texts,
            self._stored_sessions,
            self._new_events,
            self._changed_leases,
        ):
            kept.clear()

    def session(self, session_id: str) -> SessionRow | None:
        """See `store.Transaction`."""
        row = self._sessions.get(session_id)
        if row is None:
            values = self._one(_SESSION, (session_id,))
            if values is None:
                return None
            row = self._sessions[session_id] = session_row(values)
        return row

    def add_session(self, row: SessionRow) -> SessionRow:
        """See `store.Transaction`."""
        self.writes += 1
        self._execute(_INSERT_SESSION, (*card_values(row), *state_values(row)))
        stored = session_row(self._one(_SESSION, (row.session_id,)))
        self._sessions[row.session_id] = stored
        self._stored_sessions[row.session_id] = stored
        return stored

    def put_session(self, row: SessionRow) -> None:
        """See `store.Transaction`."""
        self.writes += 1
        if row.session_id not in self._stored_sessions:
            self._stored_sessions[row.session_id] = self._sessions[row.session_id]
        self._sessions[row.session_id] = row

    def find_event(self, number: int, event_id: str) -> EventRow | None:
        """See `store.Transaction`."""
        new = self._new_events.get((number, event_id))
        if new is not None:
            return new
        values = self._one(_FIND_EVENT, (number, event_id))
        if values is None:
            return None
        id, position, time, type, source, must_understand, data, digest, hash = values
        return EventRow(
            id,
            position,
            time,
            self._text(type),
            self._text(source),
            bool(must_understand),
            data,
            digest,
            hash,
        )

    def add_events(self, number: int, events: list[EventRow]) -> None:
        """See `store.Transaction`."""
        self.writes += len(events)
        for event in events:
            self._new_events[number, event.id] = event

    def update_request(self, number: int, event_id: str) -> bytes | None:
        """See `store.Transaction`."""
        found = self._one(_UPDATE_REQUEST, (number, event_id))
        return None if found is None else bytes(found[0])

    def add_update_request(self, number: int, event_id: str, digest: bytes) -> None:
        """See `store.Transaction`."""
        self.writes += 1
        self._execute("INSERT INTO updates VALUES (?, ?, ?)", (number, event_id, digest))

    def lease(self, resource: str) -> LeaseRow | None:
        """See `store.Transaction`."""
        row = self._leases.get(resource)
        if row is None:
            values = self._one(_LEASE, (resource,))
            if values is None:
                return None
            row = self._leases[resource] = lease_row(values)
        return row

    def put_lease(self, row: LeaseRow) -> None:
        """See `store.Transaction`."""
        self.writes += 1
        self._execute(_PUT_LEASE, lease_values(row))
        self._leases[row.resource] = row
        self._changed_leases[row.resource] = row

    def due_leases(self, limit: int) -> list[LeaseRow]:
        """See `store.Transaction`."""
        due = self._execute(_DUE, (self.steady, limit)).fetchall()
        rows = (self.lease(str(resource)) for (resource,) in due)
        return [row for row in rows if row is not None]

    def _write_sessions(self, rows: tuple[SessionRow, ...]) -> None:
        stored = self._stored_sessions
        self._execute_many(_UPDATE_STATE, [(*state_values(row), row.number) for row in rows])
        cards = [row for row in rows if _card(row) != _card(stored[row.session_id])]
        self._execute_many(_UPDATE_CARD, [(*card_values(row), row.number) for row in cards])

    def _write_events(self) -> None:
        rows = [
            (
                number,
                event.id,
                event.position,
                event.time,
                self._name(event.type),
                self._name(event.source),
                event.must_understand,
                event.data,
                event.digest,
                event.hash,
            )
            for (number, _), event in self._new_events.items()
        ]
        self._execute_many(_INSERT_EVENT, rows)

    def _name(self, text: str) -> int:
        number = self._names.get(text)
        if number is None:
            self._execute("INSERT OR IGNORE INTO names (text) VALUES (?)", (text,))
            number = self._names[text] = int(self._one(_NAME, (text,))[0])
        return number

    def _text(self, number: int) -> str:
        text = self._texts.get(number)
        if text is None:
            text = self._texts[number] = str(self._one(_TEXT, (number,))[0])
        return text

    def _one(self, statement: str, bindings: tuple[Any, ...]) -> Any:
        """The first row, or None."""
        return self._execute(statement, bindings).fetchone()

    def _execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> apsw.Cursor:
        # Not `with writing()`: this runs several times per event, and that is slower.
        try:
            return self._connection.execute(statement, bindings)
        except apsw.Error as error:
            raise _store_error(error) from error

    def _execute_many(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            with writing():
                self._connection.executemany(statement, rows)


def _card(row: SessionRow) -> tuple[object, ...]:
    return row.title, row.metadata, row.labels


@contextmanager
def writing() -> Iterator[None]:
    """Turn SQLite's errors into the store's."""
    try:
        yield
    except apsw.Error as error:
        raise _store_error(error) from error


def _store_error(error: apsw.Error) -> StoreFull | StoreBroken:
    if isinstance(error, apsw.FullError):
        return StoreFull(str(error))
    return StoreBroken(f"the store cannot be written: {error}")
