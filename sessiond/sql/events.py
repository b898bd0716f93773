"""Events to and from SQL values: names as numbers, and a checksum that every read checks.

A database may not notice that a bit of it flipped. The digest and a checksum do, at two
microseconds an event, so that what is read is what was written, or an error.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from struct import Struct
from typing import Any
from zlib import crc32

from carpal.chain import data_digest
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from sessiond.rows import EventRow, Redaction
from sessiond.sql.connection import Connection, Row, marks, padded, row_marks

EVENT_COLUMNS = (
    "chunk, session, position, id, time, type, source, must_understand, data, digest, hash, "
    "checksum"
)
INSERT = f"INSERT INTO events ({EVENT_COLUMNS}) VALUES "  # noqa: S608 - our own names
_CASTS = ("", "", "", "", "", "", "", "", "{blob}", "", "", "")
_REDACTION = "SELECT redacted_by, time, reason FROM redactions WHERE session = $1 AND position = $2"
_NUMBERS = Struct(">Qq")
_KEPT_NAMES = 10_000


class Names:
    """Texts that repeat, and their numbers. Numbers are never given anew, so they are kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def forget(self) -> None:
        """A transaction that may have given numbers was undone."""
        self._numbers.clear()
        self._texts.clear()

    def numbers(self, texts: Iterable[str]) -> dict[str, int]:
        """The number of each text; a new text gets one. In a write transaction."""
        known = self._numbers
        if len(known) > _KEPT_NAMES:
            known.clear()
        new = sorted({text for text in texts if text not in known})
        if new:
            for run in padded(new):
                # In order: of two who add the same names one waits, and nobody for ever.
                self._connection.execute(
                    f"INSERT INTO names (text) VALUES {row_marks(len(run), 1)} "  # noqa: S608
                    "ON CONFLICT (text) DO NOTHING",
                    run,
                )
                found = self._connection.execute(
                    f"SELECT text, number FROM names WHERE text IN ({marks(len(run))})",  # noqa: S608
                    run,
                )
                known.update(dict(found))
        return known

    def text(self, number: int) -> str:
        """The text of a number."""
        text = self._texts.get(number)
        if text is None:
            if len(self._texts) > _KEPT_NAMES:
                self._texts.clear()
            found = self._connection.execute("SELECT text FROM names WHERE number = $1", (number,))
            if not found:
                raise _corrupt("a name is missing", number=str(number))
            text = self._texts[number] = found[0][0]
        return text


@cache
def insert_statement(rows: int, blob: str) -> str:
    """The INSERT of so many events."""
    return INSERT + row_marks(rows, 12, [cast.format(blob=blob) for cast in _CASTS])


def event_values(chunk: int, session: int, event: EventRow, numbers: dict[str, int]) -> Row:
    """In the order of EVENT_COLUMNS."""
    return (
        chunk,
        session,
        event.position,
        event.id,
        event.time,
        numbers[event.type],
        numbers[event.source],
        int(event.must_understand),
        None if event.redaction else event.data,
        event.digest,
        event.hash,
        checksum(event),
    )


def checksum(event: EventRow) -> int:
    """CRC-32 of all of an event but its data, which the digest covers."""
    rest = (_NUMBERS.pack(event.position, event.time), event.id.encode(), event.digest, event.hash)
    return crc32(b"".join(rest), _checksum(event.type, event.source, event.must_understand))


@lru_cache(maxsize=1024)
def _checksum(type: str, source: str, must_understand: bool) -> int:
    """Of what repeats."""
    return crc32(f"{type}\0{source}\0{int(must_understand)}".encode())


class EventReader:
    """Makes events of rows, on one connection."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    def event(self, values: Row) -> EventRow:
        """From EVENT_COLUMNS; DATA_CORRUPT when it is not what was written."""
        (
            _,
            session,
            position,
            id,
            time,
            type,
            source,
            must_understand,
            data,
            digest,
            hash,
            check,
        ) = values
        redaction = self._redaction(session, position) if data is None else None
        row = EventRow(
            id,
            position,
            time,
            self._names.text(type),
            self._names.text(source),
            bool(must_understand),
            data or b"",
            digest,
            hash,
            redaction,
        )
        if checksum(row) != check or (redaction is None and data_digest(row.data) != digest):
            raise _corrupt(
                f"the event at position {position} is not what was written",
                position=str(position),
            )
        return row

    def _redaction(self, session: int, position: int) -> Redaction:
        found: list[Any] = self._connection.execute(_REDACTION, (session, position))
        if not found:
            raise _corrupt(f"the data of the event at position {position} is gone")
        return Redaction(*found[0])


def _corrupt(what: str, **fields: str) -> CarpalError:
    return refuse(Reason.DATA_CORRUPT, f"the store is damaged: {what}", **fields)
