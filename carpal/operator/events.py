"""Reading events: their data, their text, who appended them, and their JSON form. Pure."""

import json
import re
from datetime import UTC, datetime
from typing import Any

from carpal.v1 import types_pb2

_URI = re.compile(r"spiffe://[^/]+/([^/]+)/([^/]+)\Z")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and cursor movements: lost without regret."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def data_of(event: types_pb2.Event) -> dict[str, Any]:
    """The event's data, or {} when it is redacted, or not an object of JSON."""
    try:
        data = json.loads(event.data)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def object_in(data: dict[str, Any], key: str) -> dict[str, Any]:
    """A member that should be an object; {} when it is anything else."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def text_in(data: dict[str, Any]) -> str:
    """The text blocks of `content`, joined; other blocks by their type in brackets."""
    content = data.get("content")
    if isinstance(content, str):
        return content
    parts = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        text = block.get("text", block.get("thinking"))
        parts.append(text if isinstance(text, str) else f"[{block.get('type', 'block')}]")
    return "".join(parts)


def appender(event: types_pb2.Event) -> tuple[str, str]:
    """Role and name of who appended the event; empty when its source is not one of ours."""
    match = _URI.match(event.source)
    return (match.group(1), match.group(2)) if match else ("", "")


def time_of(event: types_pb2.Event) -> datetime:
    """When the store appended it."""
    return event.time.ToDatetime(tzinfo=UTC)


def as_json(event: types_pb2.Event) -> dict[str, Any]:
    """The event as CloudEvents shape it, with its place in the hash chain.

    `data` is the object as it was appended, or null once redacted.
    """
    try:
        data = json.loads(event.data) if event.data else None
    except (ValueError, RecursionError):
        data = event.data.decode(errors="replace")
    shown: dict[str, Any] = {
        "id": event.id,
        "position": event.position,
        "time": rfc3339(time_of(event)),
        "type": event.type,
        "source": event.source,
        "data": data,
        "must_understand": event.must_understand,
        "data_digest": event.data_digest.hex(),
        "hash": event.hash.hex(),
    }
    if event.HasField("redaction"):
        shown["redaction"] = {
            "by": event.redaction.by,
            "time": rfc3339(event.redaction.time.ToDatetime(tzinfo=UTC)),
            "reason": event.redaction.reason,
        }
    return shown


def rfc3339(moment: datetime) -> str:
    """UTC, to the millisecond, with a Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Text from a model or a hand, safe on a terminal: it must not move the cursor or set titles.

    Newlines and tabs stay, carriage returns become newlines, colours go, and
    every other control character is shown as `\\xNN`.
    """
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
