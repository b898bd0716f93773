"""A stream's events, read into a whole reply. Pure.

Blocks are kept as they came, also those of kinds that are not known here, so
that they can be passed back as they are. A tool's input is read strictly: one
that is not JSON, or is cut, is no smaller call but none at all.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from brain.budget import READ, WRITTEN, is_count
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
STOP_REASON_MAX = 200
"""Characters."""
USAGE_BYTES = 16 * 1024
"""Of the usage as JSON; it is kept as it came, but for counts that are none."""
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
        self.answered = False
        """The service accepted the request: for its caller to set."""
        self.begun = False
        """The reply itself has begun, and the input was counted."""
        self.ended = False
        self.stop_reason = ""
        self.stop: Json = {}
        """What else the end says: `stop_sequence`, `stop_details`, `container`."""
        self._usage: Json = {}
        self._counted = False
        """The end said how much was written; what the start says of it is no total."""

    def take(self, event: Json) -> None:
        """The next event. Raises Unreadable; what is of a kind not known here is passed over."""
        try:
            self._take(event)
        except _NOT_WHAT_IT_SAYS as error:
            what = type(error).__name__
            raise Unreadable(
                f"an event of the stream is not what its type says: {what} {error}"
            ) from None

    def _take(self, event: Json) -> None:
        match event.get("type"):
            case "message_start":
                self.begun = True
                message = event["message"]
                self._counts(message.get("usage"))
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
        self.stop_reason = _text_of(said.get("stop_reason") or "", "stop_reason")
        if len(self.stop_reason) > STOP_REASON_MAX:
            raise ValueError(f"a stop_reason of {len(self.stop_reason)} characters")
        for key in ("stop_sequence", "stop_details", "container"):
            if said.get(key) is not None:
                self._grow(json.dumps(said[key]))
                self.stop[key] = _shallow(said[key])
        # Counts are totals: what is said here overwrites what the start said.
        self._counts(event.get("usage"))
        self._counted = WRITTEN in (event.get("usage") or {})

    def _counts(self, usage: Any) -> None:
        """What of it is no count is left out: nobody knows it, and it is charged as that."""
        given = {name: value for name, value in dict(usage or {}).items() if value is not None}
        if len(json.dumps(given)) > USAGE_BYTES:
            raise ValueError(f"a usage of more than {USAGE_BYTES} bytes")
        odd = {name for name in (*READ, WRITTEN) if name in given and not is_count(given[name])}
        self._usage |= _shallow(given)
        for name in odd:
            del self._usage[name]
        if odd & set(READ):
            self._usage.pop(READ[0], None)

    def usage(self) -> Json:
        """What the reply took, as the service says; a count that is not there is not known."""
        total = self._counted and WRITTEN in self._usage
        return {k: v for k, v in self._usage.items() if total or k != WRITTEN}

    def so_far(self) -> Json | None:
        """The same of a reply that broke off; None before it began."""
        return self.usage() if self.begun else None

    def _add(self, to: _Open, delta: Json) -> None:
        match delta["type"]:
            case "text_delta":
                self._text(to, "text", delta["text"])
                self._delta(clean(delta["text"]), False)
            case "thinking_delta":
                self._text(to, "thinking", delta["thinking"])
                self._delta(clean(delta["thinking"]), True)
            case "input_json_delta":
                self._text(to, "input", delta["partial_json"])
            case "signature_delta":
                to.block["signature"] = _a_text(delta["signature"], "signature")
            case "citations_delta":
                self._grow(json.dumps(delta["citation"]))
                to.block["citations"] = [*(to.block.get("citations") or ()), delta["citation"]]
            case "compaction_delta":
                to.block["content"] = delta["content"]
            case kind:
                raise ValueError(f"a delta of the kind {kind!r}")

    def _text(self, to: _Open, name: str, text: str) -> None:
        self._grow(_a_text(text, name))
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
        try:
            whole = [_whole(self._blocks[index]) for index in sorted(self._blocks)]
            cleaned: list[Json] = _shallow(whole)
            for block in whole:
                _check(block)
        except _NOT_WHAT_IT_SAYS as error:
            raise Unreadable(f"a block of the reply: {type(error).__name__} {error}") from None
        for block in cleaned:
            if len(json.dumps(block, ensure_ascii=False).encode()) > BLOCK_BYTES:
                raise Unreadable(f"a block of the reply has more than {BLOCK_BYTES} bytes")
        return cleaned


_NOT_WHAT_IT_SAYS = (KeyError, TypeError, AttributeError, ValueError, RecursionError)


def _check(block: Json) -> None:
    """What is done with a block needs these. Raises ValueError, TypeError or KeyError."""
    kind = _text_of(block.get("type"), "type")
    if kind == "text":
        _a_text(block.get("text"), "text")
    elif kind == "tool_use":
        if not _text_of(block.get("name"), "name") or "input" not in block:
            raise ValueError("a tool_use without a name or an input")
        _keys(block["input"])


def _keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            _text_of(key, "a key of an input")
            _keys(each)
    elif isinstance(value, list):
        for each in value:
            _keys(each)


def _a_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__}, no text")
    return value


def _text_of(value: Any, what: str) -> str:
    """A text that is compared, and so cannot be mended: no half character may be in it."""
    if _a_text(value, what) != clean(value):
        raise ValueError(f"{what} holds half a character")
    return str(value)


def _shallow(value: Any) -> Any:
    """A value fit to be kept. Raises ValueError where it is nested too deeply."""
    if deeper(value, REPLY_DEPTH):
        raise ValueError(f"nested more than {REPLY_DEPTH} deep")
    return clean(value)


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
        if block.get("type") == "tool_use":
            shown = given if isinstance(given, str) else json.dumps(given)
            block["invalid_input"] = shown[:INVALID_SHOWN]
    return block


def _input(text: str) -> Any:
    """What a tool was given; the text itself when it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
