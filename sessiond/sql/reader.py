"""Reading: cost by what is read.

A slice walks one index in the order asked, span by span, and stops at its caps. The index knows
the types, so an event of another type costs one step on it and is never read. A fork's
slice goes from its own events to its ancestors' and back only as far as it is asked to.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing

from carpal.errors import refuse
from carpal.status import Reason
from sessiond.rows import EventRow, LeaseRow, SessionRow, Slice, SliceQuery
from sessiond.sql.blobs import SqlBlobReader
from sessiond.sql.connection import Connection, Row, marks
from sessiond.sql.documents import SqlDocumentReader
from sessiond.sql.erasing import SqlErasable
from sessiond.sql.events import EVENT_COLUMNS, EventReader, Names
from sessiond.sql.rows import LEASE_COLUMNS, SESSION_COLUMNS, lease_row, session_row
from sessiond.sql.spans import Span, spans_of

Types = list[int] | tuple[str, ...] | None
"""Numbers of types; or types and prefixes, as they were asked for; None means all."""

_SESSION_COUNT = len(SESSION_COLUMNS.split(", "))

_BOTH = (
    f"{', '.join('s.' + c for c in SESSION_COLUMNS.split(', '))}, "
    f"{', '.join('l.' + c for c in LEASE_COLUMNS.split(', '))}"
)
_LEASE = "LEFT JOIN leases l ON l.resource = 'session/' || s.session_id "
_THERE = "s.deleted IS NULL AND s.importing = 0 "
_SESSION = f"SELECT {_BOTH} FROM sessions s {_LEASE}WHERE s.session_id = $1 AND {_THERE}"  # noqa: S608
_WITH_WORK = (
    f"SELECT {SESSION_COLUMNS} FROM sessions "  # noqa: S608 - our own names
    "WHERE archived IS NULL AND deleted IS NULL AND parked = '' "
    "AND (wake > processed OR wake_at IS NOT NULL) AND importing = 0"
)
_LIVE = f"SELECT {LEASE_COLUMNS} FROM leases WHERE state = 0"  # noqa: S608 - our own names

_REDACTED = (
    "SELECT count(*) FROM redactions WHERE session = $1 AND position > $2 AND position <= $3"
)

_FEW_TYPES = 100
"""More are asked for by a subquery: a prefix may name as many as whoever appends likes."""


class SqlReader:
    """Implements `store.Reader`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.blobs = SqlBlobReader(connection)
        self.documents = SqlDocumentReader(connection)
        self.erasable = SqlErasable(connection)
        self._names = Names(connection)
        self._events = EventReader(connection, self._names)

    def forget(self) -> None:
        """Know nothing of the database: its connection is a new one."""
        self._names.forget()

    def snapshot(self) -> AbstractContextManager[object]:
        """See `store.Reader`."""
        return self._connection.snapshot()

    def session(self, session_id: str) -> tuple[SessionRow, LeaseRow | None] | None:
        """See `store.Reader`."""
        found = self._connection.execute(_SESSION, (session_id,))
        return _session_and_lease(found[0]) if found else None

    def page(
        self,
        workspace: str,
        *,
        before: int,
        limit: int,
        archived: bool,
        labels: Mapping[str, str],
    ) -> list[tuple[SessionRow, LeaseRow | None]]:
        """See `store.Reader`."""
        values: list[object] = [workspace, before, limit]
        live = "" if archived else "AND s.archived IS NULL "
        wanted = ""
        for key, value in labels.items():
            values += [key, value]
            wanted += (
                "AND EXISTS (SELECT 1 FROM labels WHERE session = s.number AND workspace = $1 "  # noqa: S608
                f"AND key = ${len(values) - 1} AND value = ${len(values)}) "
            )
        found = self._connection.execute(
            f"SELECT {_BOTH} FROM sessions s {_LEASE}"  # noqa: S608 - our own names
            f"WHERE s.workspace = $1 AND s.number < $2 AND {_THERE}{live}{wanted}"
            "ORDER BY s.number DESC LIMIT $3",
            values,
        )
        return [_session_and_lease(row) for row in found]

    def slice(self, session: SessionRow, query: SliceQuery) -> Slice:
        """See `store.Reader`."""
        types = self._types(query.types)
        events: list[EventRow] = []
        size = 0
        if types == []:
            return Slice([], session.head, more=False)
        low, high = max(query.low, 0), min(query.high, session.head + 1)
        with closing(self._walk(session, query, types)) as found:
            for event in found:
                if types is None:
                    read = len(events)
                    _check(
                        event.position, high - 1 - read if query.newest_first else low + 1 + read
                    )
                size += len(event.data)
                if len(events) == query.limit or (events and size > query.max_bytes):
                    return Slice(events, session.head, more=True)
                events.append(event)
        if types is None:
            _check(len(events), max(0, high - low - 1))
        return Slice(events, session.head, more=False)

    def redacted(self, session: SessionRow, upto: int) -> int:
        """See `store.Reader`."""
        count = 0
        for number, above, last in _segments(session, newest_first=False):
            found = self._connection.execute(_REDACTED, (number, above, min(last, upto)))
            count += int(found[0][0])
        return count

    def with_work(self) -> list[SessionRow]:
        """See `store.Reader`."""
        return [session_row(values) for values in self._connection.execute(_WITH_WORK)]

    def live_leases(self) -> list[LeaseRow]:
        """See `store.Reader`."""
        return [lease_row(values) for values in self._connection.execute(_LIVE)]

    def close(self) -> None:
        """See `store.Reader`."""
        self._connection.close()

    def _walk(self, session: SessionRow, query: SliceQuery, types: Types) -> Generator[EventRow]:
        """Events in the order asked, from whichever session of the lineage holds them."""
        high = min(query.high, session.head + 1)
        for number, low, upto in _segments(session, newest_first=query.newest_first):
            between = (max(query.low, low), min(high, upto + 1))
            spans = spans_of(self._connection, number, *between, newest_first=query.newest_first)
            for span in spans:
                statement, values = slice_statement(number, span, query, types)
                with closing(self._connection.stream(statement, values, query.limit + 1)) as rows:
                    for row in rows:
                        yield self._events.event(row)

    def _types(self, wanted: tuple[str, ...]) -> Types:
        """Numbers of the types and prefixes wanted, or those themselves when they are too many."""
        if not wanted:
            return None
        numbers: set[int] = set()
        for type in wanted:
            named, value = _named(type, 1)
            found = self._connection.execute(
                f"SELECT number FROM names WHERE {named} LIMIT {_FEW_TYPES + 1}",  # noqa: S608
                (value,),
            )
            numbers.update(number for (number,) in found)
            if len(numbers) > _FEW_TYPES:
                return wanted
        return sorted(numbers)


def slice_statement(
    number: int, span: Span, query: SliceQuery, types: Types
) -> tuple[str, tuple[int | str, ...]]:
    """The SQL of a slice of one span, and its values. One row more than the limit says `more`."""
    order = "DESC" if query.newest_first else "ASC"
    among, values = _among(types, 6)
    statement = (
        f"SELECT {EVENT_COLUMNS} FROM events "  # noqa: S608 - our own names
        f"WHERE chunk = $1 AND session = $2 AND position > $3 AND position < $4 {among}"
        f"ORDER BY position {order} LIMIT $5"
    )
    return statement, (span.chunk, number, span.low, span.high, query.limit + 1, *values)


def _check(found: int, expected: int) -> None:
    """DATA_CORRUPT when there is another position, or are fewer, than there must be."""
    if found != expected:
        raise refuse(Reason.DATA_CORRUPT, "the store is damaged: a part of the log is not found")


def _among(types: Types, first: int) -> tuple[str, Sequence[int | str]]:
    """The condition that an event is of these types, and its values, from `$first` on."""
    if types is None:
        return "", ()
    if isinstance(types, list):
        return f"AND type IN ({marks(len(types), first)}) ", types
    named = [_named(type, first + n) for n, type in enumerate(types)]
    either = " OR ".join([condition for condition, _ in named])
    # IS TRUE: or PostgreSQL makes it a join, which does not keep the order of the index.
    among = f"AND (type IN (SELECT number FROM names WHERE {either})) IS TRUE "  # noqa: S608
    return among, [value for _, value in named]


def _named(type: str, mark: int) -> tuple[str, str]:
    """The condition that a name is this type, or has this prefix; and its value."""
    if type.endswith(".*"):
        # Not by the order of texts, which is another in each database.
        return f"substr(text, 1, {len(type) - 1}) = ${mark}", type[:-1]
    return f"text = ${mark}", type


def _segments(session: SessionRow, *, newest_first: bool) -> list[tuple[int, int, int]]:
    """(session number, above, up to) of each part of the log, in the order of reading."""
    segments = []
    above = 0
    for source, upto in session.lineage:
        segments.append((source, above, upto))
        above = upto
    segments.append((session.number, above, session.head))
    return segments[::-1] if newest_first else segments


def _session_and_lease(values: Row) -> tuple[SessionRow, LeaseRow | None]:
    lease = values[_SESSION_COUNT:]
    return session_row(values), lease_row(lease) if lease[0] is not None else None
