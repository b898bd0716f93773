"""Tails: replay, then live, many sessions on one stream.

A tail reads the store at its own pace from its own position, so a slow one holds up
nobody. What a commit just appended is handed on to the tails that have all before it,
up to a bound; beyond it, and whenever positions do not meet, the tail reads again. So
what is sent follows from the position alone, and no event is lost or sent twice.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from carpal.errors import invalid, refuse
from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import session_pb2
from sessiond import wire
from sessiond.pending import Pending
from sessiond.readers import Readers
from sessiond.rows import Changes, EventRow, SliceQuery
from sessiond.rules.append import not_found
from sessiond.rules.reads import check_types, find
from sessiond.store import Reader

MAX_SESSIONS = 1000
SLICE_EVENTS = 1000
SLICE_BYTES = 1024 * 1024
"""Of data in one message; small, so that many sessions on a stream take turns."""

_FRESH_EVENTS = 500
_FRESH_BYTES = 256 * 1024
"""Of one session, kept for one tail that has not taken them yet."""
_FRESH_SESSIONS = 64
"""With such, for one tail: of a tail that stands still, more would fill the memory."""

Fresh = tuple[EventRow, ...]
Marks = Pending[str, Fresh]
"""Sessions that may have more events than a tail has sent, with the newest of them when all
since the tail's last look are at hand; with none when the store is to be read."""


class Tails:
    """All tails of this process."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._by_session: dict[str, set[Marks]] = {}
        self._closed = False

    def update(self, changes: Changes) -> None:
        """What a commit changed."""
        if not self._by_session:
            return
        if changes.erased:
            self._read_again()
        for session in changes.sessions:
            events = tuple(changes.events.get(session.session_id, ()))
            if session.deleted is not None:
                events = ()  # the read finds that it is gone
            for marks in self._by_session.get(session.session_id, ()):
                waiting = marks.get(session.session_id)
                if waiting is None and marks.count() >= _FRESH_SESSIONS:
                    waiting = ()
                marks.put(session.session_id, _merged(waiting, events))

    def _read_again(self) -> None:
        """What is at hand may have been erased since, through whichever fork shares it."""
        for session_id, every in self._by_session.items():
            for marks in every:
                if marks.get(session_id):
                    marks.put(session_id, ())

    def sessions(self) -> Collection[str]:
        """Whose events somebody waits for."""
        return self._by_session.keys()

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
        # Of one session the first read is the check too.
        check = len(positions) == 1
        if not check:
            await self._readers.run(lambda reader: _check_all(reader, caller, positions))
        live: set[str] = set()
        with self._marked(positions) as marks:
            while True:
                for session_id, fresh in await marks.take(1):
                    position = positions[session_id]
                    new = [event for event in fresh if event.position > position]
                    if session_id in live and new and new[0].position == position + 1:
                        positions[session_id] = new[-1].position
                        wanted = [event for event in new if _among(event.type, types)]
                        if wanted:
                            yield _message(session_id, wanted, new[-1].position, live=True)
                        continue
                    if session_id in live and fresh and not new:
                        continue
                    response = await self._next(
                        session_id, position, types, caller if check else None
                    )
                    check = False
                    if not response.live:
                        marks.put(session_id, ())  # after the others' turn
                    if response.events or (response.live and session_id not in live):
                        yield response
                    if response.live:
                        live.add(session_id)
                        positions[session_id] = max(position, response.head)
                    else:
                        positions[session_id] = response.events[-1].position

    async def _next(
        self, session_id: str, position: int, types: tuple[str, ...], check: Identity | None
    ) -> session_pb2.TailEventsResponse:
        """The next slice; with `check`, if that caller may see it."""
        query = SliceQuery(
            low=min(position, 2**62), types=types, limit=SLICE_EVENTS, max_bytes=SLICE_BYTES
        )

        def read(reader: Reader) -> session_pb2.TailEventsResponse:
            with reader.snapshot():
                if check is not None:
                    _check_all(reader, check, {session_id: position})
                there = reader.session(session_id)
                if there is None:
                    raise not_found(session_id)
                found = reader.slice(there[0], query)
            return _message(session_id, found.events, found.head, live=not found.more)

        return await self._readers.run(read)

    @contextmanager
    def _marked(self, session_ids: Iterable[str]) -> Iterator[Marks]:
        """Marks for these sessions, all set at first: whatever is there is to be read."""
        marks: Marks = Pending()
        if self._closed:
            marks.close()
        for session_id in session_ids:
            self._by_session.setdefault(session_id, set()).add(marks)
            marks.put(session_id, ())
        try:
            yield marks
        finally:
            for session_id in session_ids:
                every = self._by_session[session_id]
                every.discard(marks)
                if not every:
                    del self._by_session[session_id]


def _check_all(reader: Reader, caller: Identity, positions: Mapping[str, int]) -> None:
    for session_id, after in positions.items():
        session, _ = find(reader, caller, session_id)
        if after > session.head:
            # Whoever saw it saw a log that a restore has undone. To wait for the position to
            # come again would be to skip what comes before it.
            raise refuse(
                Reason.POSITION_BEYOND_HEAD,
                f"the log of {session_id} ends at {session.head}, before {after}",
                action="read it anew, it may have been restored from a backup",
                session_id=session_id,
                head=str(session.head),
            )


def _merged(waiting: Fresh | None, new: Fresh) -> Fresh:
    """What is at hand once `new` came: all of it, or nothing when that is too much or has a gap."""
    if not waiting:
        return new if waiting is None and _bounded(new) else ()
    if not new or new[0].position != waiting[-1].position + 1:
        return ()
    both = waiting + new
    return both if _bounded(both) else ()


def _bounded(events: Fresh) -> bool:
    return len(events) <= _FRESH_EVENTS and sum(len(e.data) for e in events) <= _FRESH_BYTES


def _among(type: str, types: Sequence[str]) -> bool:
    """Whether a type is one of these, or has one of these prefixes; all are when none is named."""
    return not types or any(
        type == wanted or (wanted.endswith(".*") and type.startswith(wanted[:-1]))
        for wanted in types
    )


def _message(
    session_id: str, events: Sequence[EventRow], head: int, *, live: bool
) -> session_pb2.TailEventsResponse:
    return session_pb2.TailEventsResponse(
        session_id=session_id, events=[wire.event(row) for row in events], live=live, head=head
    )
