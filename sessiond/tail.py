"""Tails: replay, then live, many sessions on one stream.

A commit only marks a session as having more; each tail reads the store at its
own pace from its own position. So a slow tail holds up nobody, and there is
one path for replay and live: no seam at which an event could be lost or sent
twice.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

from carpal.errors import invalid
from carpal.identity import Identity
from carpal.v1 import session_pb2
from sessiond import wire
from sessiond.append import not_found
from sessiond.pending import Pending
from sessiond.readers import Readers
from sessiond.reads import check_types, find
from sessiond.rows import SessionRow, SliceQuery
from sessiond.store import Reader

MAX_SESSIONS = 1000
SLICE_EVENTS = 1000
SLICE_BYTES = 1024 * 1024
"""Of data in one message; small, so that many sessions on a stream take turns."""

Marks = Pending[str, int]
"""Sessions that may have more events than a tail has sent."""


class Tails:
    """All tails of this process."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._by_session: dict[str, set[Marks]] = {}
        self._closed = False

    def update(self, sessions: Iterable[SessionRow]) -> None:
        """Sessions as a commit left them."""
        for session in sessions:
            for marks in self._by_session.get(session.session_id, ()):
                marks.put(session.session_id, session.head)

    def sessions(self) -> list[str]:
        """Whose events somebody waits for."""
        return list(self._by_session)

    def close(self) -> None:
        """The server stops: every tail is told."""
        self._closed = True
        for marks in {marks for every in self._by_session.values() for marks in every}:
            marks.close()

    async def tail(
        self, caller: Identity, request: session_pb2.TailEventsRequest
    ) -> AsyncIterator[session_pb2.TailEventsResponse]:
        """Events of each session from its cursor on, for as long as the caller listens."""
        types = check_types(request.types)
        positions = {cursor.session_id: cursor.after for cursor in request.cursors}
        if not 1 <= len(request.cursors) <= MAX_SESSIONS:
            raise invalid("cursors", f"1 to {MAX_SESSIONS} are needed")
        if len(positions) != len(request.cursors):
            raise invalid("cursors", "a session is named twice")
        await self._readers.run(lambda reader: _check_all(reader, caller, positions))
        live: set[str] = set()
        with self._marked(positions) as marks:
            while True:
                for session_id, _ in await marks.take(1):
                    response = await self._next(session_id, positions[session_id], types)
                    if not response.live:
                        marks.put(session_id, response.head)  # after the others' turn
                    if response.events or (response.live and session_id not in live):
                        yield response
                    if response.live:
                        live.add(session_id)
                        positions[session_id] = max(positions[session_id], response.head)
                    else:
                        positions[session_id] = response.events[-1].position

    async def _next(
        self, session_id: str, position: int, types: tuple[str, ...]
    ) -> session_pb2.TailEventsResponse:
        query = SliceQuery(
            low=min(position, 2**62), types=types, limit=SLICE_EVENTS, max_bytes=SLICE_BYTES
        )

        def read(reader: Reader) -> session_pb2.TailEventsResponse:
            with reader.snapshot():
                there = reader.session(session_id)
                if there is None:
                    raise not_found(session_id)
                found = reader.slice(there[0], query)
            return session_pb2.TailEventsResponse(
                session_id=session_id,
                events=[wire.event(row) for row in found.events],
                live=not found.more,
                head=found.head,
            )

        return await self._readers.run(read)

    @contextmanager
    def _marked(self, session_ids: Iterable[str]) -> Iterator[Marks]:
        """Marks for these sessions, all set at first: whatever is there is to be read."""
        marks: Marks = Pending()
        if self._closed:
            marks.close()
        for session_id in session_ids:
            self._by_session.setdefault(session_id, set()).add(marks)
            marks.put(session_id, 0)
        try:
            yield marks
        finally:
            for session_id in session_ids:
                every = self._by_session[session_id]
                every.discard(marks)
                if not every:
                    del self._by_session[session_id]


def _check_all(reader: Reader, caller: Identity, session_ids: Iterable[str]) -> None:
    for session_id in session_ids:
        find(reader, caller, session_id)
