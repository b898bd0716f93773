"""What results have attached: events → one row each, and a file's name for it. Pure.

Names and kinds are a hand's to choose: they lead out of no folder, and are one line of a terminal.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from carpal.file_names import file_name
from carpal.operator.events import data_of, printable
from carpal.v1 import types_pb2

RESULTS = ("agent.tool_result", "hand.late_result")
"""Types of events that may have some."""
_BLOB = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Attached:
    """One attachment of one result."""

    position: int
    """Of the result."""
    number: int
    """1 is the first of its result."""
    hand_id: str
    name: str
    media_type: str
    size: int
    blob: str
    """`sha256:…`."""

    @property
    def digest(self) -> str:
        """The blob's, in hex."""
        return self.blob.removeprefix("sha256:")

    def row(self) -> dict[str, Any]:
        """It, for scripts."""
        return {
            "position": self.position,
            "number": self.number,
            "hand_id": self.hand_id,
            "name": self.name,
            "media_type": self.media_type,
            "size": self.size,
            "blob": self.blob,
        }

    def text(self, link: str = "") -> str:
        """It, in one line for people; its blob where there is no link to it."""
        name = one_line(self.name) or "unnamed"
        said = f"{name}, {one_line(self.media_type) or 'of no kind'}, {self.size} bytes"
        return f"at {self.position}  {said}  {link or self.blob}"

    def file_name(self) -> str:
        """What its file is called in any folder: `12-1-shot.png`."""
        plain = file_name(self.name, self.media_type)
        return f"{self.position}-{self.number}-{plain}"


def attached(events: Iterable[types_pb2.Event]) -> Iterator[Attached]:
    """All of these events, in their order. A redacted one has none, whatever it had."""
    for event in events:
        if event.type in RESULTS and not event.HasField("redaction"):
            yield from _of(event.position, data_of(event))


def _of(position: int, data: Mapping[str, Any]) -> Iterator[Attached]:
    told = data.get("attachments")
    for number, each in enumerate(told if isinstance(told, list) else (), start=1):
        if not isinstance(each, dict) or not _BLOB.fullmatch(str(each.get("blob"))):
            continue
        size = each.get("size")
        yield Attached(
            position=position,
            number=number,
            hand_id=str(data.get("hand_id", "")),
            name=str(each.get("name", "")),
            media_type=str(each.get("media_type", "")),
            size=size if type(size) is int else 0,
            blob=str(each["blob"]),
        )


def one_line(text: str) -> str:
    """A text of a hand's as a part of one line of a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in printable(text))
