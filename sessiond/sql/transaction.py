"""The write transaction: loaded for a whole batch, changed in memory, written in one go.

A session that many groups of one batch append to is updated once. Where this
process is the only writer, rows are kept from one transaction to the next; they are
immutable, and a rollback forgets them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import msgspec

from sessiond.rows import Changes, EventRow, LeaseRow, Needs, Redaction, SessionRow
from sessiond.sql.blobs import SqlBlobs
from sessiond.sql.connection import Connection, Row, chunks, flat, marks, padded, row_marks
from sessiond.sql.documents import SqlDocuments
from sessiond.sql.erasing import SqlEraser
from sessiond.sql.events import EVENT_COLUMNS, EventReader, Names, event_values, insert_statement
from sessiond.sql.rows import (
    CARD_COLUMNS,
    DRIVE_COLUMNS,
    LEASE_COLUMNS,
    LOG_COLUMNS,
    SESSION_COLUMNS,
    card_values,
    drive_values,
    lease_row,
    lease_values,
    log_values,
    same_but_log,
    session_row,
)
from sessiond.sql.spans import CHUNK_OF, SpanWriter
from sessiond.sql.workspaces import Workspaces

_KEPT_ROWS = 10_000
"""Rows kept between transactions, at most; about 1 KB each."""
_DUE = "SELECT resource FROM leases WHERE state = 0 AND expires <= $1 ORDER BY expires LIMIT $2"
_DUE_AT_ONCE = 1_000
_AT_MOST = 2
"""Events loaded for each id that a batch names: an id may be in any number of sessions."""
_AT = (
    f"SELECT {EVENT_COLUMNS} FROM events "  # noqa: S608 - our own names
    f"WHERE chunk = ({CHUNK_OF}) AND session = $1 AND position = $2"
)
BY_ID = f"SELECT {EVENT_COLUMNS} FROM events WHERE id = $1 AND session = $2"  # noqa: S608
_NULLABLE = ("wake_at", "not_before")


class SqlTransaction:
    """Implements `store.Transaction`; one object for the life of the connection."""

    def __init__(
        self, connection: Connection, *, blob: str, sole_writer: bool, chunked: bool
    ) -> None:
        """`blob` is the database's type for bytes; for `chunked` see `sql.spans`."""
        self._connection = connection
        self._blob = blob
        self._sole_writer = sole_writer
        self._names = Names(connection)
        self._reader = EventReader(connection, self._names)
        self._spans = SpanWriter(connection, chunked=chunked)
        self.wall = 0
        self.steady = 0
        self.writes = 0
        self.erases = False
        """Whether bytes go in this transaction that must not stay anywhere on the disk."""
        self.eraser = SqlEraser(connection, self)
        self._workspaces = Workspaces(connection, sole_writer=sole_writer)
        self.blobs = SqlBlobs(connection, self, self._workspaces)
        self.documents = SqlDocuments(connection, self, self._workspaces)
        self._sessions: dict[str, SessionRow | None] = {}
        self._leases: dict[str, LeaseRow | None] = {}
        self._known_events: dict[str, Sequence[Row]] = {}
        """By event id: what was there before, in whichever session."""
        self._stored_sessions: dict[str, SessionRow] = {}
        """The rows on disk of sessions that this transaction changed."""
        self._new_events: dict[tuple[int, str], EventRow] = {}
        """By session and id, in the order they are to be written."""
        self._appended: dict[str, list[EventRow]] = {}
        """The same by session id."""
        self._changed_leases: dict[str, LeaseRow] = {}
        self._new_leases: set[str] = set()
        """Resources that had none before."""

    def begin(self, wall: int, steady: int, needs: Sequence[Needs]) -> None:
        """Start, and load what the batch will look at."""
        self.wall, self.steady, self.writes, self.erases = wall, steady, 0, False
        if not self._sole_writer:
            self._sessions.clear()
            self._leases.clear()
        self._known_events.clear()
        leases = [name for need in needs for name in need.leases if name not in self._leases]
        if any(need.due for need in needs):
            due = self._connection.execute(_DUE, (steady, _DUE_AT_ONCE))
            leases += [resource for (resource,) in due]
        sessions = [id for need in needs for id in need.sessions if id not in self._sessions]
        # Whoever changes a session's lease locks the session first.
        sessions += [name[8:] for name in leases if name.startswith("session/")]
        self._load(sessions, leases, [id for need in needs for id in need.events])
        self._workspaces.begin(name for need in needs for name in need.workspaces)

    def commit(self) -> Changes:
        """Write what changed and make it durable."""
        leases = tuple(self._changed_leases.values())
        numbers = self._names.numbers(
            {text for e in self._new_events.values() for text in (e.type, e.source)}
        )
        chunk = self._spans.chunk(len(self._new_events))
        with self._connection.pipelined():
            self._spans.place(chunk, self._appended, self._sessions)
            before = self._stored_sessions
            changed = [row for name in before if (row := self._sessions[name]) is not None]
            self._write_sessions(changed)
            rows = [event_values(chunk, n, e, numbers) for (n, _), e in self._new_events.items()]
            for run in chunks(rows):
                self._connection.execute(insert_statement(len(run), self._blob), flat(run))
            self._write_leases(leases)
            self._connection.commit()
        events, self._appended = self._appended, {}
        self._stored_sessions.clear()
        self._new_events.clear()
        self._changed_leases.clear()
        self._new_leases.clear()
        for kept in (self._sessions, self._leases):
            if len(kept) > _KEPT_ROWS:
                kept.clear()
        if self.erases:
            events = {}
        return Changes(tuple(changed), leases, events, self.erases)

    def rollback(self) -> None:
        """Undo, and forget every row: memory must not know what the disk does not."""
        self.forget()
        self._connection.rollback()

    def forget(self) -> None:
        """Know nothing of what is on disk."""
        self._names.forget()
        self._spans.forget()
        self._sessions.clear()
        self._leases.clear()
        self._known_events.clear()
        self._stored_sessions.clear()
        self._new_events.clear()
        self._appended.clear()
        self._changed_leases.clear()
        self._new_leases.clear()

    def session(self, session_id: str) -> SessionRow | None:
        """See `store.Transaction`."""
        if session_id not in self._sessions:
            self._load(sessions=[session_id])
        return self._sessions.get(session_id)

    def add_session(self, row: SessionRow) -> SessionRow:
        """See `store.Transaction`."""
        self.writes += 1
        values = (*card_values(row), *log_values(row), *drive_values(row))
        columns = f"{CARD_COLUMNS}, {LOG_COLUMNS}, {DRIVE_COLUMNS}"
        stored = self._connection.execute(
            f"INSERT INTO sessions ({columns}) VALUES ({marks(len(values))}) "  # noqa: S608
            f"RETURNING {SESSION_COLUMNS}",
            values,
        )
        session = session_row(stored[0])
        self._write_labels(session)
        for source, upto in row.lineage:
            self._connection.execute(
                "INSERT INTO lineage (fork, source, upto) VALUES ($1, $2, $3)",
                (session.number, source, upto),
            )
        self._sessions[row.session_id] = self._stored_sessions[row.session_id] = session
        return session

    def put_session(self, row: SessionRow) -> None:
        """See `store.Transaction`."""
        self.writes += 1
        if row.session_id not in self._stored_sessions:
            before = self._sessions[row.session_id]
            assert before is not None
            self._stored_sessions[row.session_id] = before
        self._sessions[row.session_id] = row

    def find_event(self, session: SessionRow, event_id: str) -> EventRow | None:
        """See `store.Transaction`."""
        new = self._new_events.get((session.number, event_id))
        if new is not None:
            return new
        for source, upto in session.lineage:
            new = self._new_events.get((source, event_id))
            if new is not None and new.position <= upto:
                return new
        found = self._known_events.get(event_id)
        if found is None:
            numbers = {session.number, *(source for source, _ in session.lineage)}
            queries = [(BY_ID, (event_id, number)) for number in numbers]
            found = [row for rows in self._connection.execute_all(queries) for row in rows]
        for values in found:
            if session.has(values[1], values[2]):
                return self._reader.event(values)
        return None

    def add_events(self, session: SessionRow, events: Collection[EventRow]) -> None:
        """See `store.Transaction`."""
        self.writes += len(events)
        for event in events:
            self._new_events[session.number, event.id] = event
        self._appended.setdefault(session.session_id, []).extend(events)

    def event_at(self, session: SessionRow, position: int) -> EventRow | None:
        """See `store.Transaction`."""
        number = session.holder(position)
        for (new, _), event in self._new_events.items():
            if new == number and event.position == position:
                return event
        found = self._connection.execute(_AT, (number, position))
        return self._reader.event(found[0]) if found else None

    def erase(self, number: int, event: EventRow, redaction: Redaction) -> EventRow:
        """Forget the data of an event of session `number`; what is on disk is the eraser's."""
        self.erases = True
        erased = msgspec.structs.replace(event, data=b"", redaction=redaction)
        if (number, event.id) in self._new_events:
            self._new_events[number, event.id] = erased
        self._known_events.pop(event.id, None)
        return erased

    def unwritten(self, session: SessionRow) -> bool:
        """Whether this transaction changed the session or its log, which is not yet on disk."""
        return session.session_id in self._stored_sessions or any(
            number == session.number for number, _ in self._new_events
        )

    def remove_session(self, session: SessionRow) -> None:
        """Remove the row of a session that nothing is left of."""
        self.writes += 1
        self._connection.execute("DELETE FROM sessions WHERE number = $1", (session.number,))
        self._sessions[session.session_id] = None

    def update_request(self, session: SessionRow, event_id: str) -> bytes | None:
        """See `store.Transaction`."""
        found = self._connection.execute(
            "SELECT request FROM updates WHERE session = $1 AND event_id = $2",
            (session.number, event_id),
        )
        return bytes(found[0][0]) if found else None

    def add_update_request(self, session: SessionRow, event_id: str, digest: bytes) -> None:
        """See `store.Transaction`."""
        self.writes += 1
        self._connection.execute(
            "INSERT INTO updates (session, event_id, request) VALUES ($1, $2, $3)",
            (session.number, event_id, digest),
        )

    def lease(self, resource: str) -> LeaseRow | None:
        """See `store.Transaction`."""
        if resource not in self._leases:
            self._load(leases=[resource])
        return self._leases.get(resource)

    def put_lease(self, row: LeaseRow) -> None:
        """See `store.Transaction`."""
        self.writes += 1
        if self.lease(row.resource) is None:
            self._new_leases.add(row.resource)
        self._leases[row.resource] = self._changed_leases[row.resource] = row

    def due_leases(self, limit: int) -> list[LeaseRow]:
        """See `store.Transaction`."""
        due = self._connection.execute(_DUE, (self.steady, limit))
        rows = (self.lease(resource) for (resource,) in due)
        return [row for row in rows if row is not None and not row.live(self.steady)]

    def generation(self) -> int:
        """See `store.Transaction`."""
        return int(
            self._connection.execute("SELECT value FROM meta WHERE key = 'generation'")[0][0]
        )

    def _load(
        self,
        sessions: Iterable[str] = (),
        leases: Iterable[str] = (),
        events: Iterable[str] = (),
    ) -> None:
        """Load what is not known, in one round trip; rows are locked in the order of their ids.

        Sessions come first: whoever changes a session's lease locks the session before.
        """
        lock = self._connection.lock_rows
        wanted = [
            (_select_statement(table, len(run)) + locked, run, take)
            for table, missing, locked, take in (
                ("sessions", _missing(self._sessions, sessions), lock, self._take_sessions),
                ("leases", _missing(self._leases, leases), lock, self._take_leases),
                ("events", _missing(self._known_events, events), "", self._take_events),
            )
            for run in padded(missing)
        ]
        if wanted:
            found = self._connection.execute_all([(query, run) for query, run, _ in wanted])
            for (_, run, take), rows in zip(wanted, found, strict=True):
                take(run, rows)

    def _take_sessions(self, session_ids: Sequence[str], rows: list[Row]) -> None:
        self._sessions.update(dict.fromkeys(session_ids))
        self._sessions.update({values[1]: session_row(values) for values in rows})

    def _take_leases(self, resources: Sequence[str], rows: list[Row]) -> None:
        self._leases.update(dict.fromkeys(resources))
        self._leases.update({values[0]: lease_row(values) for values in rows})

    def _take_events(self, ids: Sequence[str], rows: list[Row]) -> None:
        if len(rows) == _AT_MOST * len(ids):
            return  # ids that many sessions use are looked for in one session at a time
        found: dict[str, list[Row]] = {}
        for values in rows:
            found.setdefault(values[3], []).append(values)
        self._known_events.update(dict.fromkeys(ids, ()))
        self._known_events.update(found)

    def _write_sessions(self, rows: Iterable[SessionRow]) -> None:
        logs: list[Row] = []
        drives: list[Row] = []
        for row in rows:
            stored = self._stored_sessions[row.session_id]
            logs.append((row.number, *log_values(row)))
            if same_but_log(row, stored):
                continue
            drives.append((row.number, *drive_values(row)))
            if card_values(row) != card_values(stored):
                self._write_card(row)
        for columns, values in ((LOG_COLUMNS, logs), (DRIVE_COLUMNS, drives)):
            for run in chunks(values):
                self._connection.execute(_update_statement(columns, len(run)), flat(run))

    def _write_leases(self, rows: Iterable[LeaseRow]) -> None:
        columns = LEASE_COLUMNS.split(", ")
        sets = ", ".join(f"{column} = excluded.{column}" for column in columns[1:])
        replacing = f" ON CONFLICT (resource) DO UPDATE SET {sets}"
        new: list[Row] = []
        known: list[Row] = []
        for row in rows:
            (new if row.resource in self._new_leases else known).append(lease_values(row))
        # What is not there cannot be locked: of two who grant the first lease of a
        # resource at once, one must fail.
        for values, conflict in ((new, ""), (known, replacing)):
            for run in chunks(values):
                self._connection.execute(
                    f"INSERT INTO leases ({LEASE_COLUMNS}) "  # noqa: S608 - our own names
                    f"VALUES {row_marks(len(run), len(columns))}{conflict}",
                    flat(run),
                )

    def _write_card(self, row: SessionRow) -> None:
        values = card_values(row)
        sets = ", ".join(
            f"{column} = ${n}" for n, column in enumerate(CARD_COLUMNS.split(", "), start=1)
        )
        self._connection.execute(
            f"UPDATE sessions SET {sets} WHERE number = ${len(values) + 1}",  # noqa: S608
            (*values, row.number),
        )
        self._connection.execute("DELETE FROM labels WHERE session = $1", (row.number,))
        self._write_labels(row)

    def _write_labels(self, row: SessionRow) -> None:
        for key, value in row.labels.items():
            self._connection.execute(
                "INSERT INTO labels (workspace, key, value, session) VALUES ($1, $2, $3, $4)",
                (row.workspace, key, value, row.number),
            )


def _missing(known: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    """Those to load. None has a NUL: to ask for such would make a database refuse the batch."""
    return sorted({key for key in keys if key not in known and "\0" not in key})


_SELECTED = {
    "sessions": (SESSION_COLUMNS, "session_id", " ORDER BY session_id"),
    "leases": (LEASE_COLUMNS, "resource", " ORDER BY resource"),
    "events": (EVENT_COLUMNS, "id", ""),
}


@cache
def _select_statement(table: str, rows: int) -> str:
    """The SELECT of a table's rows by so many keys."""
    columns, key, order = _SELECTED[table]
    bound = f" LIMIT {_AT_MOST * rows}" if table == "events" else ""
    return f"SELECT {columns} FROM {table} WHERE {key} IN ({marks(rows)}){order}{bound}"  # noqa: S608


@cache
def _update_statement(columns: str, rows: int) -> str:
    """The UPDATE of so many sessions; values are (session number, the columns') each."""
    names = columns.split(", ")
    if rows == 1:  # at half the price of joining with a table of one row
        sets = ", ".join(f"{name} = ${n}" for n, name in enumerate(names, start=2))
        return f"UPDATE sessions SET {sets} WHERE number = $1"  # noqa: S608 - our own names
    sets = ", ".join(f"{name} = v.column{n}" for n, name in enumerate(names, start=2))
    casts = ["", *("BIGINT" if name in _NULLABLE else "" for name in names)]
    return (
        f"UPDATE sessions SET {sets} "  # noqa: S608 - our own names
        f"FROM (VALUES {row_marks(rows, len(names) + 1, casts)}) AS v "
        "WHERE sessions.number = v.column1"
    )
