"""Reading on SQLite: its own read-only connection, cost by what is read.

A slice walks one index in the order asked and stops at its caps. The index knows
the types, so an event of another type costs one step on it and is never read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from sessiond.rows import EventRow, LeaseRow, SessionRow, Slice, SliceQuery
from sessiond.sqlite_rows import (
    EVENT_COLUMNS,
    LEASE_COLUMNS,
    SESSION_COLUMNS,
    lease_row,
    session_row,
)
from sessiond.store import StoreBroken

_KEPT_NAMES = 10_000
_LEASE_COUNT = len(LEASE_COLUMNS.split(", "))

_SESSION_AND_LEASE = (
    f"SELECT {', '.join('s.' + c for c in SESSION_COLUMNS.split(', '))}, "  # noqa: S608
    f"{', '.join('l.' + c for c in LEASE_COLUMNS.split(', '))} "
    "FROM sessions s LEFT JOIN leases l ON l.resource = 'session/' || s.session_id "
)
_TEXT = "SELECT text FROM names WHERE number = ?"
_WITH_WORK = (
    f"SELECT {SESSION_COLUMNS} FROM sessions "  # noqa: S608
    "WHERE archived IS NULL AND parked = '' AND (wake > processed OR wake_at IS NOT NULL)"
)


class SqliteReader:
    """Implements `store.Reader`."""

    def __init__(self, path: str) -> None:
        self._connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(5_000)
        self._texts: dict[int, str] = {}

    def session(self, session_id: str) -> tuple[SessionRow, LeaseRow | None] | None:
        """See `store.Reader`."""
        with _reading():
            values = self._connection.execute(
                _SESSION_AND_LEASE + "WHERE s.session_id = ?", (session_id,)
            ).fetchone()
        return values and _session_and_lease(values)

    def page(
        self, workspace: str, *, before: int, limit: int, archived: bool
    ) -> list[tuple[SessionRow, LeaseRow | None]]:
        """See `store.Reader`."""
        live = "" if archived else "AND s.archived IS NULL "
        with _reading():
            found = self._connection.execute(
                _SESSION_AND_LEASE
                + f"WHERE s.workspace = ? AND s.number < ? {live}ORDER BY s.number DESC LIMIT ?",
                (workspace, before, limit),
            ).fetchall()
        return [_session_and_lease(values) for values in found]

    def slice(self, session_id: str, query: SliceQuery) -> Slice | None:
        """See `store.Reader`."""
        with _reading():
            self._connection.execute("BEGIN")
            try:
                found = self._connection.execute(
                    "SELECT number, head FROM sessions WHERE session_id = ?", (session_id,)
                ).fetchone()
                if found is None:
                    return None
                number, head = found
                return self._slice(number, head, query)
            finally:
                self._connection.execute("COMMIT")

    def with_work(self) -> list[SessionRow]:
        """See `store.Reader`."""
        with _reading():
            return [session_row(values) for values in self._connection.execute(_WITH_WORK)]

    def live_leases(self) -> list[LeaseRow]:
        """See `store.Reader`."""
        with _reading():
            found = self._connection.execute(
                f"SELECT {LEASE_COLUMNS} FROM leases WHERE state = 0"  # noqa: S608
            )
            return [lease_row(values) for values in found]

    def close(self) -> None:
        """See `store.Reader`."""
        self._connection.close()

    def _slice(self, number: int, head: int, query: SliceQuery) -> Slice:
        types = self._types(query.types)
        if types == []:
            return Slice([], head, more=False)
        statement, bindings = slice_statement(number, query, types)
        events: list[EventRow] = []
        size = 0
        for values in self._connection.execute(statement, bindings):
            event = self._event(values)
            size += len(event.data)
            if len(events) == query.limit or (events and size > query.max_bytes):
                return Slice(events, head, more=True)
            events.append(event)
        return Slice(events, head, more=False)

    def _types(self, wanted: tuple[str, ...]) -> list[int] | None:
        """Numbers of the types and prefixes wanted; None means all."""
        if not wanted:
            return None
        numbers: set[int] = set()
        for type in wanted:
            if type.endswith(".*"):
                # From `user.` to before `user/`, which follows it.
                condition = "text >= ? AND text < ?"
                bounds: tuple[str, ...] = (type[:-1], type[:-2] + "/")
            else:
                condition, bounds = "text = ?", (type,)
            found = self._connection.execute(
                f"SELECT number FROM names WHERE {condition}",  # noqa: S608 - one of two above
                bounds,
            )
            numbers.update(value for (value,) in found)
        return sorted(numbers)

    def _event(self, values: tuple[Any, ...]) -> EventRow:
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

    def _text(self, number: int) -> str:
        text = self._texts.get(number)
        if text is None:
            if len(self._texts) > _KEPT_NAMES:
                self._texts.clear()
            found: Any = self._connection.execute(_TEXT, (number,)).fetchone()
            text = self._texts[number] = str(found[0])
        return text


def slice_statement(
    number: int, query: SliceQuery, types: list[int] | None
) -> tuple[str, tuple[int, ...]]:
    """The SQL of a slice, and its bindings. One row more than the limit says `more`."""
    walk = f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? "  # noqa: S608
    between = "AND position > ? AND position < ? "
    bounds = (query.low, query.high)
    order = f"ORDER BY position {'DESC' if query.newest_first else 'ASC'} LIMIT ?"
    if types is None:
        return walk + between + order, (number, *bounds, query.limit + 1)
    among = f"AND type IN ({', '.join('?' * len(types))}) "
    return walk + between + among + order, (number, *bounds, *types, query.limit + 1)


def _session_and_lease(values: tuple[Any, ...]) -> tuple[SessionRow, LeaseRow | None]:
    lease = values[-_LEASE_COUNT:]
    return session_row(values), lease_row(lease) if lease[0] is not None else None


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise StoreBroken(f"the store cannot be read: {error}") from error
