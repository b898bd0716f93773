"""What passes between Claude Code and the Messages API it believes to talk to. Pure.

In come its requests, freed of what is about this process alone; out go
replies, as one message or as a stream's events, with each `tool_use` under
its call's id of the log.
"""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

SERVER = "hands"
"""Name of the MCP server the session's hands are given as."""
PREFIX = f"mcp__{SERVER}__"
"""What Claude Code puts before the names of that server's tools."""
GO_ON = "[carpal: go on]"
"""What makes it ask again after tool results from before its process began. Never sent on."""
_OF_THE_PROCESS = ("metadata", "stream")
"""Parameters that differ by process or by transport: they say nothing of the conversation."""


def request_of(body: Json) -> Json:
    """The Messages API parameters of a request's body: what is sent on, hashed and kept."""
    request = {key: value for key, value in body.items() if key not in _OF_THE_PROCESS}
    request["messages"] = [message for each in body["messages"] if (message := _said(each))]
    return request


def _said(message: Json) -> Json | None:
    """The message without `GO_ON`; None when nothing else was in it."""
    content = message["content"]
    if isinstance(content, str):
        return None if content.strip() == GO_ON else message
    kept: list[Json] = []
    for block in content:
        if block.get("type") != "text" or block["text"].strip() != GO_ON:
            kept.append(block)
            continue
        if kept and kept[-1].get("type") == "text":
            # It was parted from the text before it by a line's end.
            kept[-1] = {**kept[-1], "text": kept[-1]["text"].removesuffix("\n")}
        if kept and (cache := block.get("cache_control")):
            kept[-1] = {**kept[-1], "cache_control": cache}
    return {**message, "content": kept} if kept else None


def restored(request: Json, results: dict[str, Json]) -> Json:
    """The request with the results as the log has them, by the ids of their calls.

    Claude Code puts a large one into a file of its own, and tells the model where: in a folder
    that only it can read, and with its tools off not even that.
    """

    def true(block: Json) -> Json:
        known = results.get(block.get("tool_use_id", ""))
        if known is None:
            return block
        cache = {key: value for key, value in block.items() if key == "cache_control"}
        return {**known, **cache}

    messages = [
        message
        if isinstance(message["content"], str)
        else {**message, "content": [true(block) for block in message["content"]]}
        for message in request["messages"]
    ]
    return {**request, "messages": messages}


def is_reply(request: Json, system: str, tools: frozenset[str]) -> bool:
    """Whether a request asks for the conversation's next reply, and is no aside.

    Asides, such as a title for the session, have instructions of their own, or want JSON.
    """
    if (request.get("output_config") or {}).get("format"):
        return False
    if frozenset(tool["name"] for tool in request.get("tools") or ()) != tools:
        return False
    told = request.get("system") or ""
    texts = [told] if isinstance(told, str) else [block.get("text", "") for block in told]
    return not system or any(system.strip() in text for text in texts)


def message_of(message_id: str, model: str, blocks: list[Json], stop: str, usage: Json) -> Json:
    """A reply as the API's message; tools are called by the names Claude Code knows."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [prefixed(block) for block in blocks],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0, **usage},
    }


def prefixed(block: Json) -> Json:
    """A block, its tool by the name Claude Code knows."""
    if block["type"] != "tool_use" or block["name"].startswith(PREFIX):
        return block
    return {**block, "name": PREFIX + block["name"]}


def error_of(kind: str, message: str) -> Json:
    """The API's error, as a response's body or a stream's event."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def events_of(message: Json) -> Iterator[Json]:
    """A whole message as a stream's events."""
    begun = {**message, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        opening, deltas = _parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _parts(block: Json) -> tuple[Json, list[Json]]:
    """A block as it opens, and what is then added to it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            opening = {**block, "thinking": "", "signature": ""}
            said = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block.get("signature", "")}
            return opening, [said, signed]
        case "tool_use":
            given = json.dumps(block["input"])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": given}]
    return block, []


def encode(event: Json) -> bytes:
    """One event on the wire."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
