"""How a conversation comes back to a new process of Claude Code. Pure.

The log's conversation is written as the session file that Claude Code itself
goes on from. Whether it did is seen at its first request, before anything is
paid for: all that was said must stand in it. Where it does not, because its
format changed, one new conversation begins whose first message holds what was
said as text.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from brain.harnesses.claude_code.wire import GO_ON, prefixed

Json = dict[str, Any]
_NAMESPACE = uuid.UUID("6f2ac3a8-9b0f-4c3e-8f6b-5d6f0f4d9a11")
_TOLD = (
    "What follows in <conversation> was said and done in this session before; you go on from there."
)


@dataclass(frozen=True)
class Opening:
    """How a process begins."""

    entries: list[Json]
    """Messages its session file holds; none begins without a file."""
    prompt: list[Json]
    """Content of the first message; none when what the file ends with is to be answered."""


def as_known(messages: list[Json]) -> list[Json]:
    """A policy's messages, their tools by the names Claude Code knows."""
    return [{**m, "content": [_plain(prefixed(block)) for block in m["content"]]} for m in messages]


def _plain(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "cache_control"}


def opening(messages: list[Json]) -> Opening:
    """From the conversation up to what is to be answered, a user's turn."""
    *before, last = messages
    if last["role"] == "assistant":
        # The model paused, and goes on where it did.
        return Opening(messages, [{"type": "text", "text": GO_ON}])
    if not before:
        return Opening([], last["content"])
    if any(block["type"] == "tool_result" for block in last["content"]):
        return Opening(messages, [])
    return Opening(before, last["content"])


def as_text(messages: list[Json]) -> Opening:
    """The same as one first message."""
    *before, last = messages
    asked = [block for block in last["content"] if block["type"] == "text"]
    done = [block for block in last["content"] if block["type"] != "text"]
    turns = [*before, {"role": "user", "content": done}] if done else before
    told = "\n\n".join(_told(turn["role"], block) for turn in turns for block in turn["content"])
    text = f"{_TOLD}\n\n<conversation>\n{told}\n</conversation>"
    return Opening([], [{"type": "text", "text": text}, *asked])


def _told(role: str, block: Json) -> str:
    match block["type"]:
        case "text":
            return f"{role}: {block['text']}"
        case "tool_use":
            return f"{role} called {block['name']} ({block['id']}): {json.dumps(block['input'])}"
        case "tool_result":
            outcome = "error" if block.get("is_error") else "result"
            return f"{outcome} of {block['tool_use_id']}: {_text(block.get('content'))}"
    return f"{role}: [{block['type']}]"


def session_id(of: str) -> str:
    """A session's id as Claude Code takes ids, the same for the same."""
    return str(uuid.uuid5(_NAMESPACE, of))


def file_of(entries: list[Json], session: str, folder: str, model: str, now: str) -> str:
    """The session file: a line an entry, each naming the one before."""
    lines: list[str] = []
    before: str | None = None
    for index, message in enumerate(entries):
        this = str(uuid.uuid5(_NAMESPACE, f"{session}/{index}"))
        said: Json = {"role": message["role"], "content": message["content"]}
        if message["role"] == "assistant":
            said |= {"id": f"msg_{index}", "type": "message", "model": model}
            said |= {"stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        entry = {
            "parentUuid": before,
            "isSidechain": False,
            "type": message["role"],
            "message": said,
            "uuid": this,
            "timestamp": now,
            "sessionId": session,
            "cwd": folder,
            "userType": "external",
        }
        lines.append(json.dumps(entry) + "\n")
        before = this
    return "".join(lines)


def missing(request: Json, told: list[Json]) -> str:
    """What of the messages told does not stand in a request; empty when all does."""
    texts: list[str] = []
    uses: dict[str, Json] = {}
    results: dict[str, Json] = {}
    media: list[Any] = []
    for message in request["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "text":
                    texts.append(block["text"])
                case "tool_use":
                    uses[block["id"]] = block
                case "tool_result":
                    results[block["tool_use_id"]] = block
                case "image" | "document":
                    media.append(block.get("source"))
    said = "\n".join(texts)
    for message in told:
        for block in message["content"]:
            match block["type"]:
                case "text" if block["text"].strip() not in said:
                    return f"a text of the {message['role']}"
                case "tool_use" if uses.get(block["id"], {}).get("input") != block["input"]:
                    return f"the call {block['id']}"
                case "tool_result" if not _same(results.get(block["tool_use_id"]), block):
                    return f"the result of {block['tool_use_id']}"
                case "image" | "document" if block.get("source") not in media:
                    return f"a picture or a document of the {message['role']}"
    return ""


def _same(one: Json | None, other: Json) -> bool:
    if one is None or bool(one.get("is_error")) != bool(other.get("is_error")):
        return False
    return _text(one.get("content")).strip() == _text(other.get("content")).strip()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", f"[{block['type']}]") for block in content or ())
