"""Reading events: their data, their text, and who appended them. Pure."""

import json
import re
from datetime import UTC, datetime
from typing import Any

from carpal.v1 import types_pb2

_URI = re.compile(r"spiffe://[^/]+/([^/]+)/([^/]+)\Z")
_MISSING = re.compile(r"hand '([^']*)': (.*)", re.DOTALL)
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and cursor movements: lost without regret."""
_UNFINISHED = re.compile(r"(?:\r|\x1b(?:\[[0-?]*[ -/]*)?)\Z")
"""What the next piece of a stream may complete: an escape code, or the end of a line."""
_UNFINISHED_MAX = 64
"""Characters held back; no real escape code is longer."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Also those that turn the direction of text, so that it reads as something else."""


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


def missing_hand(event: types_pb2.Event, data: dict[str, Any]) -> tuple[str, str] | None:
    """Name of the hand that an event says could not be had, and why; else None."""
    if event.type == "hand.provision_failed":
        why = data.get("message") or data.get("reason") or "no reason given"
        return str(data.get("name", "?")), str(why)
    error = object_in(data, "error")
    if event.type == "session.error" and error.get("type") == "hand_unavailable_error":
        found = _MISSING.match(str(error.get("message")))
        return (found[1], found[2]) if found else None
    return None


BY_ANY_BRAIN = frozenset({"hand.entered", "hand.left", "hand.event"})
"""Types of events that a brain may append which does not drive the session."""


def appender(event: types_pb2.Event) -> tuple[str, str]:
    """Role and name of who appended the event; empty when its source is not one of ours."""
    match = _URI.match(event.source)
    return (match.group(1), match.group(2)) if match else ("", "")


def time_of(event: types_pb2.Event) -> datetime:
    """When the store appended it."""
    return event.time.ToDatetime(tzinfo=UTC)


def rfc3339(moment: datetime) -> str:
    """UTC, to the millisecond, with a Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Printable:
    """One stream of text from a model or a hand, made safe for a terminal piece by piece.

    It must not move the cursor or set titles: newlines and tabs stay, carriage
    returns become newlines, colours go, and every other control character is
    shown as `\\xNN`, wherever the stream was cut.
    """

    def __init__(self) -> None:
        self._held = ""

    def take(self, text: str) -> str:
        """What can be shown once this piece came."""
        text, self._held = self._held + text, ""
        unfinished = _UNFINISHED.search(text)
        if unfinished and len(unfinished.group()) <= _UNFINISHED_MAX:
            text, self._held = text[: unfinished.start()], unfinished.group()
        return _safe(text)

    def end(self) -> str:
        """What was held back, once no more comes."""
        text, self._held = self._held, ""
        return _safe(text)


def printable(text: str) -> str:
    """A whole text, as `Printable` makes it."""
    return _safe(text)


def _safe(text: str) -> str:
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(_visible, text)


def _visible(match: "re.Match[str]") -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
