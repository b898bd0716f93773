"""A stream's events, read into a whole reply. Pure.

Blocks are kept as they came, also those of kinds that are not known here, so
that they can be passed back as they are. A tool's input is read strictly: one
that is not JSON, or is cut, is no smaller call but none at all.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from brain.text import clean
from carpal.json_in import DEPTH_MAX, deeper

Json = dict[str, Any]
Delta = Callable[[str, bool], None]
"""Called with text as it comes, and whether it is thinking."""

REPLY_DEPTH = DEPTH_MAX - 10
"""Objects and lists within each other in a reply: its events must be read back."""
BLOCK_BYTES = 900_000
"""Of one block as JSON: it must fit in an event."""
REPLY_BYTES = 3_500_000
"""Of all: they are appended as one group."""
INVALID_SHOWN = 2_000
"""Characters kept of a tool's input that is not JSON."""


class Unreadable(Exception):
    """What came is no reply."""


@dataclass
class _Open:
    """A block in the making."""

    block: Json
    parts: dict[str, list[str]] = field(default_factory=dict)
    """What its deltas add, by the field they add to."""


class Reading:
    """One reply, event by event."""

    def __init__(self, delta: Delta) -> None:
        self._delta = delta
        self._blocks: dict[int, _Open] = {}
        self._size = 0
        self.begun = False
        self.ended = False
        self.stop_reason = ""
        self.stop: Json = {}
        """What else the end says: `stop_sequence`, `stop_details`, `container`."""
        self.usage: Json = {}

    def take(self, event: Json) -> None:
        """The next event. Raises Unreadable; what is of a kind not known here is passed over."""
        try:
            self._take(event)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Unreadable(
                f"an event of the stream is not what its type says: {error!r}"
            ) from None

    def _take(self, event: Json) -> None:
        match event.get("type"):
            case "message_start":
                self.begun = True
                message = event["message"]
                self.usage = dict(message.get("usage") or {})
                for index, block in enumerate(message.get("content") or ()):
                    self._blocks[index] = _Open(dict(block))
            case "content_block_start":
                self._grow(json.dumps(event["content_block"]))
                self._blocks[int(event["index"])] = _Open(dict(event["content_block"]))
            case "content_block_delta":
                self._add(self._blocks[int(event["index"])], event["delta"])
            case "message_delta":
                self._close(event)
            case "message_stop":
                self.ended = True

    def _close(self, event: Json) -> None:
        said = event.get("delta") or {}
        self.stop_reason = str(said.get("stop_reason") or "")
        for key in ("stop_sequence", "stop_details", "container"):
            if said.get(key) is not None:
                self.stop[key] = said[key]
        # Counts are totals: what is said here overwrites what the start said.
        self.usage |= {k: v for k, v in (event.get("usage") or {}).items() if v is not None}

    def _add(self, to: _Open, delta: Json) -> None:
        match delta["type"]:
            case "text_delta":
                self._text(to, "text", delta["text"])
                self._delta(delta["text"], False)
            case "thinking_delta":
                self._text(to, "thinking", delta["thinking"])
                self._delta(delta["thinking"], True)
            case "input_json_delta":
                self._text(to, "input", delta["partial_json"])
            case "signature_delta":
                to.block["signature"] = delta["signature"]
            case "citations_delta":
                self._grow(json.dumps(delta["citation"]))
                to.block["citations"] = [*(to.block.get("citations") or ()), delta["citation"]]
            case "compaction_delta":
                to.block["content"] = delta["content"]
            case kind:
                raise ValueError(f"a delta of the kind {kind!r}")

    def _text(self, to: _Open, name: str, text: str) -> None:
        self._grow(text)
        to.parts.setdefault(name, []).append(text)

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > REPLY_BYTES:
            raise Unreadable(f"the reply has more than {REPLY_BYTES} bytes")

    def blocks(self) -> list[Json]:
        """The content, once the end came. Raises Unreadable.

        A `tool_use` whose input is no JSON object has `input: {}`, and what came as
        `invalid_input`.
        """
        whole = [_whole(self._blocks[index]) for index in sorted(self._blocks)]
        if deeper(whole, REPLY_DEPTH):
            raise Unreadable(f"the reply is nested more than {REPLY_DEPTH} deep")
        cleaned: list[Json] = clean(whole)
        for block in cleaned:
            if len(json.dumps(block, ensure_ascii=False).encode()) > BLOCK_BYTES:
                raise Unreadable(f"a block of the reply has more than {BLOCK_BYTES} bytes")
        return cleaned


def _whole(opened: _Open) -> Json:
    block = {key: value for key, value in opened.block.items() if value is not None}
    for name, parts in opened.parts.items():
        text = "".join(parts)
        if name != "input":
            block[name] = str(block.get(name) or "") + text
        elif text:
            block["input"] = _input(text)
    if "input" in block and not isinstance(block["input"], dict):
        given, block["input"] = block["input"], {}
        if block["type"] == "tool_use":
            shown = given if isinstance(given, str) else json.dumps(given)
            block["invalid_input"] = shown[:INVALID_SHOWN]
    return block


def _input(text: str) -> Any:
    """What a tool was given; the text itself when it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
