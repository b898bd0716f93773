"""Where a session's events are in the index by position: spans of positions, each in a chunk.

A database that writes whole pages writes a leaf of an index for each session of a commit,
when a session has a leaf of its own. So there the index begins with a chunk, in which all
sessions' events of one period are side by side, on few leaves. Which chunks a session's
events are in, `spans` tells. Elsewhere all events are in one chunk.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple

import msgspec

from sessiond.rows import EventRow, SessionRow
from sessiond.sql.connection import Connection, Row, chunks, flat, row_marks

CHUNK_EVENTS = 1024
"""Two or three leaves. Fewer, and a session that is busy with others has more spans to walk."""
CHUNK_OF = "SELECT chunk FROM spans WHERE session = $1 AND first <= $2 ORDER BY first DESC LIMIT 1"
"""In which chunk a position of a session is."""
ANY = 2**62
"""Beyond every position."""

_BATCH = 16
"""Spans looked up at once: a slice seldom needs more."""
_NEWEST_CHUNK = "SELECT coalesce(max(chunk), 0) FROM events"
_DOWN = (
    "SELECT first, chunk FROM spans WHERE session = $1 AND first < $2 ORDER BY first DESC LIMIT $3"
)
_UP = (
    "SELECT first, chunk FROM spans WHERE session = $1 AND first < $3 AND first >= "
    "coalesce((SELECT max(first) FROM spans WHERE session = $1 AND first <= $2), 0) "
    "ORDER BY first LIMIT $4"
)


class Span(NamedTuple):
    """Positions of one session in one chunk, the bounds not included."""

    chunk: int
    low: int
    high: int


class SpanWriter:
    """Gives new events their chunk, in write transactions."""

    def __init__(self, connection: Connection, *, chunked: bool) -> None:
        self._connection = connection
        self._chunked = chunked
        self._chunk = 0
        self._room = 0

    def forget(self) -> None:
        """The last chunk may not be in the store."""
        self._room = 0
        self._chunk = 0

    def chunk(self, events: int) -> int:
        """The chunk of this transaction's new events."""
        if self._chunked and events:
            if self._chunk == 0:
                self._chunk = self._connection.execute(_NEWEST_CHUNK)[0][0]
            if self._room <= 0:
                self._chunk += 1
                self._room = CHUNK_EVENTS
            self._room -= events
        return self._chunk

    def place(
        self,
        chunk: int,
        appended: Mapping[str, Sequence[EventRow]],
        sessions: MutableMapping[str, SessionRow | None],
    ) -> None:
        """Note where each session's new events are, in `spans` and in its row."""
        new: list[Row] = []
        for session_id, events in appended.items():
            row = sessions[session_id]
            assert row is not None
            if row.chunk != chunk:
                new.append((row.number, events[0].position, chunk))
                sessions[session_id] = msgspec.structs.replace(row, chunk=chunk)
        for run in chunks(new):
            self._connection.execute(
                f"INSERT INTO spans (session, first, chunk) VALUES {row_marks(len(run), 3)}",  # noqa: S608
                flat(run),
            )


def spans_of(
    connection: Connection, number: int, low: int, high: int, *, newest_first: bool
) -> Iterator[Span]:
    """What holds the positions of session `number` between two bounds, in the order asked."""
    if high - low <= 1:
        return iter(())
    walk = _down if newest_first else _up
    return walk(connection, number, low, high)


def _down(connection: Connection, number: int, low: int, high: int) -> Iterator[Span]:
    while found := connection.execute(_DOWN, (number, high, _BATCH)):
        for first, chunk in found:
            yield Span(chunk, max(low, first - 1), high)
            if first - 1 <= low:
                return
            high = first
        if len(found) < _BATCH:
            return


def _up(connection: Connection, number: int, low: int, high: int) -> Iterator[Span]:
    while found := connection.execute(_UP, (number, low + 1, high, _BATCH)):
        whole = len(found) < _BATCH
        ends = [first for first, _ in found[1:]]
        for (_, chunk), end in zip(found, [*ends, high] if whole else ends, strict=False):
            yield Span(chunk, low, end)
            low = end - 1
        if whole:
            return
