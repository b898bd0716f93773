"""A message as the events of a stream, in the API's order and words.

message_start, then per block content_block_start, content_block_delta …,
content_block_stop, then message_delta, message_stop; one ping early on.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from brain.practice.blocks import Block

Event = dict[str, Any]
"""Its `type` is also the event's name on the wire."""

PING: Event = {"type": "ping"}
_CUMULATIVE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
)


def events_of(message: dict[str, Any], chunk: int) -> Iterator[Event]:
    """The stream of a whole message, with deltas of at most `chunk` characters."""
    usage = message["usage"]
    begun = {"output_tokens": min(1, usage["output_tokens"]), "output_tokens_details": None}
    open_ended = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
    start = {**message, "content": [], **open_ended, "usage": {**usage, **begun}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _opening(block)}
        if index == 0:
            yield PING
        for delta in _deltas(block, chunk):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {
            "stop_reason": message["stop_reason"],
            "stop_sequence": message["stop_sequence"],
            "stop_details": message["stop_details"],
            "container": message["container"],
        },
        "usage": {key: usage[key] for key in _CUMULATIVE},
    }
    yield {"type": "message_stop"}


def _opening(block: Block) -> Block:
    """The block with nothing in it yet."""
    if block["type"] == "text":
        return {**block, "text": ""}
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}
    return {**block, "input": {}}


def _deltas(block: Block, chunk: int) -> Iterator[dict[str, str]]:
    if block["type"] == "text":
        for part in _parts(block["text"], chunk):
            yield {"type": "text_delta", "text": part}
    elif block["type"] == "thinking":
        for part in _parts(block["thinking"], chunk):
            yield {"type": "thinking_delta", "thinking": part}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        # The API opens with an empty part, and cuts the JSON wherever it falls.
        yield {"type": "input_json_delta", "partial_json": ""}
        text = msgspec.json.encode(block["input"]).decode() if block["input"] else ""
        for part in _parts(text, chunk):
            yield {"type": "input_json_delta", "partial_json": part}


def _parts(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def encode(event: Event) -> bytes:
    """One event on the wire."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))
