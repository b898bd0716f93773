"""An event of a log as text that a person or a model reads. Pure."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from brain.session.entries import Entry, Json

REDACTED = "[redacted]"
"""Stands for what a redacted event said."""


def heading(entry: Entry) -> str:
    """Which event it is, in one line: its position, its type, when it was."""
    try:
        when = datetime.fromtimestamp(entry.time, UTC)
    except (OverflowError, ValueError, OSError):  # no store's clock says so
        return f"{entry.position} {entry.type}"
    return f"{entry.position} {entry.type} {when:%Y-%m-%dT%H:%M:%SZ}"


def text_of(entry: Entry) -> str:
    """What it says; of what is no part of the conversation, its data as JSON.

    Whatever its data is, for nobody may have checked it.
    """
    data = entry.data
    if entry.redacted:
        return REDACTED
    match entry.type:
        case "user.message" | "system.message" | "agent.message" | "agent.thinking":
            return _content(data)
        case "agent.tool_use":
            hand = f" on hand {data['hand']}" if data.get("hand") else ""
            return f"{data.get('name')}{hand}, call {entry.id}\n{_json(data.get('input'))}"
        case "agent.tool_result" | "hand.late_result":
            ended = f"{data.get('outcome')}, call {data.get('tool_use_id')}"
            return f"{ended}\n{_content(data)}"
    return _json(data)


def _content(data: Json) -> str:
    content = data.get("content")
    if not isinstance(content, list):
        return _json(data)
    return "\n".join(_blocks(content))


def _blocks(content: list[object]) -> Iterable[str]:
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        said = block.get(kind) if isinstance(block, dict) and isinstance(kind, str) else None
        if kind in ("text", "thinking") and isinstance(said, str):
            yield said
        else:
            yield f"[a block of type {kind!r}]"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
