"""One event as one line of JSON, and back without loss. Pure.

The fields are the event's. `data` is shown as the value that it is; the exact
bytes come back because the reader tries the ways in which programs write a
value and keeps the one that has `data_digest`. Bytes that are written in no
such way (a number's odd form, a key twice, not JSON at all) are also there in
`data_base64`, which then decides. So a line may be reformatted on its way.
"""

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from carpal.chain import data_digest
from carpal.v1 import types_pb2

T = TypeVar("T")

_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all here is UTC, and written with a Z
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_SPELLINGS = tuple(
    json.JSONEncoder(ensure_ascii=ascii_only, separators=separators, allow_nan=False)
    for separators in ((",", ":"), (", ", ": "))
    for ascii_only in (False, True)
)
"""Compact before spaced, as most events are written."""
_LINE, _ASCII_LINE = _SPELLINGS[2:]
_DEEP = 200
"""How much of Python's limit on nesting is left to whoever reads a line."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


class Malformed(ValueError):
    """What was read is not what it should be; the text says how, as the end of a sentence."""


def dumps(value: Any) -> bytes:
    """A value as one line, without its newline."""
    try:
        return _LINE.encode(value).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can say
        return _ASCII_LINE.encode(value).encode()


def loads(line: bytes) -> Any:
    """The value of a line, or Malformed."""
    try:
        return _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        raise Malformed("is not JSON, or is cut short") from None


def event_object(event: types_pb2.Event) -> dict[str, Any]:
    """The event as CloudEvents shape it, with its place in the hash chain.

    `time` has nanoseconds; hashes are hexadecimal; `data` is null once redacted.
    """
    value, exact = _shown(event)
    fields: dict[str, Any] = {
        "id": event.id,
        "position": event.position,
        "time": time_text(event.time),
        "type": event.type,
        "source": event.source,
        "data": value,
        "must_understand": event.must_understand,
        "data_digest": event.data_digest.hex(),
        "hash": event.hash.hex(),
    }
    if event.HasField("redaction"):
        fields["redaction"] = {
            "by": event.redaction.by,
            "time": time_text(event.redaction.time),
            "reason": event.redaction.reason,
        }
    # A redacted event has no data; one that has some is for the chain's check to find.
    if event.data if event.HasField("redaction") else not exact:
        fields["data_base64"] = base64.b64encode(event.data).decode()
    return fields


def event_of(fields: Any) -> types_pb2.Event:
    """The event of such an object, or Malformed. Whether it is true is for the chain to say."""
    event = types_pb2.Event(
        id=member(fields, "id", str),
        position=number(fields, "position"),
        time=time_of(member(fields, "time", str)),
        type=member(fields, "type", str),
        source=member(fields, "source", str),
        must_understand=member(fields, "must_understand", bool),
        data_digest=hex_bytes(fields, "data_digest"),
        hash=hex_bytes(fields, "hash"),
    )
    if "redaction" in fields:
        redaction = member(fields, "redaction", dict)
        event.redaction.by = member(redaction, "by", str)
        event.redaction.time.CopyFrom(time_of(member(redaction, "time", str)))
        event.redaction.reason = member(redaction, "reason", str)
    if "data_base64" in fields:
        event.data = base64_bytes(fields, "data_base64")
    elif "data" not in fields:
        raise Malformed("has no `data`")
    elif fields["data"] is not None or "redaction" not in fields:
        event.data = _bytes_of(fields["data"], event.data_digest)
    return event


def member(fields: Any, name: str, kind: type[T]) -> T:
    """A member of an object that is of a kind, or Malformed."""
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Malformed(f"has no `{name}`, or a wrong one")
    if isinstance(value, str) and not _is_text(value):
        raise Malformed(f"has a `{name}` that is not Unicode")
    return value


def number(fields: Any, name: str) -> int:
    """A member that is a whole number of 64 bits, or Malformed."""
    value = member(fields, name, int)
    if not 0 <= value < 1 << 64:
        raise Malformed(f"has a `{name}` that is no position or size")
    return value


def hex_bytes(fields: Any, name: str) -> bytes:
    """A member of hexadecimal digits, or Malformed."""
    try:
        return bytes.fromhex(member(fields, name, str))
    except ValueError:
        raise Malformed(f"has a `{name}` that is not hexadecimal") from None


def base64_bytes(fields: Any, name: str) -> bytes:
    """A member in base64, or Malformed."""
    try:
        return base64.b64decode(member(fields, name, str), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"has a `{name}` that is not base64") from None


def time_text(time: Timestamp) -> str:
    """RFC 3339 in UTC, to the nanosecond."""
    try:
        whole = _EPOCH + timedelta(seconds=time.seconds)
    except OverflowError:  # no store's clock says so; shown as what it is, and not read back
        return f"{time.seconds}.{time.nanos:09}"
    return f"{whole.isoformat()}.{time.nanos:09}Z"


def time_of(text: str) -> Timestamp:
    """The time of such a text, or Malformed."""
    match = _TIME.fullmatch(text)
    try:
        whole = datetime.fromisoformat(match[1] if match else "")
    except ValueError:
        whole = None
    if match is None or whole is None:
        raise Malformed(f"has a time {text[:40]!r} that is not like 2026-01-31T23:59:59.000000000Z")
    seconds = (whole - _EPOCH) // timedelta(seconds=1)
    return Timestamp(seconds=seconds, nanos=int((match[2] or "").ljust(9, "0")))


def nanoseconds(time: Timestamp) -> int:
    """Since 1970."""
    return time.seconds * _SECOND + time.nanos


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(event: types_pb2.Event) -> tuple[Any, bool]:
    """The value to show for an event's data, and whether a reader gets the bytes from it."""
    data = event.data
    try:
        value = _parsed(data)
        return value, data in _spellings(value) and data_digest(data) == event.data_digest
    except (ValueError, RecursionError):
        return (data.decode(errors="replace") if data else None), False


def _parsed(data: bytes) -> Any:
    """The value of JSON that a line around it does not make too deep to be read."""
    if data.count(b"[") + data.count(b"{") > _DEEP:
        _DECODER.decode("[" * _DEEP + data.decode() + "]" * _DEEP)
    return _DECODER.decode(data.decode())


def _bytes_of(value: Any, digest: bytes) -> bytes:
    """The spelling of a value that has a digest; the first when none has: it was edited."""
    first = None
    try:
        for data in _spellings(value):
            first = first or data
            if data_digest(data) == digest:
                return data
    except (ValueError, RecursionError):
        first = None
    if first is None:
        raise Malformed("has a `data` that is not JSON")
    return first


def _spellings(value: Any) -> Iterator[bytes]:
    """The ways in which programs write a value; ValueError for what JSON cannot say."""
    for spelling in _SPELLINGS:
        # Half of a surrogate pair is written by an escape alone.
        with contextlib.suppress(UnicodeEncodeError):
            yield spelling.encode(value).encode()
