"""What an MCP server answers to a call, as a hand's result: text, and what is attached. Pure.

Text is the model's to read; structured content only where there is no text, for the one mostly
says the other again. What no result can hold is a line in brackets, which says what it was.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from hands.attachments import problem
from hands.mcp.said import shown
from hands.mcp.words import word

EMPTY = "[the tool answered nothing]"
_WORDS_MAX = 500
"""Characters of a name or an address in a line."""


class Attached(NamedTuple):
    """A picture or a file of a result."""

    data: bytes
    media_type: str
    name: str


def rendered(result: Mapping[str, Any]) -> tuple[str, list[Attached]]:
    """The text of a `CallToolResult`, as JSON has it, never empty; and what it attaches."""
    parts: list[str] = []
    attached: list[Attached] = []
    blocks = result.get("content")
    for block in blocks if isinstance(blocks, list) else []:
        text, file = _block(block)
        if file is not None and (why := problem(len(attached), file.data, file.name)):
            text += f": left out: {why}]"  # the call was done, so it is no error
        elif file is not None:
            text += ": attached]"
            attached.append(file)
        if text:
            parts.append(text)
    structured = result.get("structuredContent")
    if structured is not None and not any(_is_text(each) for each in blocks or ()):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return shown("\n".join(parts)) or EMPTY, attached


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and bool(block.get("text"))


def _block(block: Any) -> tuple[str, Attached | None]:
    """Its text, and its file: then the text is the begin of a line that says what became of it."""
    if not isinstance(block, dict):
        return "[a part of the answer that is none]", None
    match block.get("type"):
        case "text":
            return str(block.get("text", "")), None
        case "image":
            kind = _word(block.get("mimeType")) or "image/png"
            return _file(block.get("data"), kind, "image", "an image")
        case "audio":
            size = len(str(block.get("data", ""))) * 3 // 4
            return f"[audio, {_word(block.get('mimeType'))}, about {size} bytes: left out]", None
        case "resource_link":
            about = [_word(block.get(key)) for key in ("name", "uri", "mimeType", "description")]
            return f"[a link to a resource: {', '.join(filter(None, about))}]", None
        case "resource":
            return _resource(block.get("resource"))
        case kind:
            return f"[a part of the answer of the kind {_word(kind)}: left out]", None


def _resource(resource: Any) -> tuple[str, Attached | None]:
    if not isinstance(resource, dict):
        return "[a resource that is none]", None
    uri = _word(resource.get("uri"))
    if isinstance(text := resource.get("text"), str):
        return f"[resource {uri}]\n{text}", None
    kind = _word(resource.get("mimeType")) or "application/octet-stream"
    return _file(
        resource.get("blob"), kind, uri.rpartition("/")[2] or "resource", f"resource {uri}"
    )


def _file(data: Any, kind: str, name: str, what: str) -> tuple[str, Attached | None]:
    try:
        found = base64.b64decode(str(data or ""), validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}, {kind}: it is no base64, and left out]", None
    if not found:
        return f"[{what}, {kind}: it is empty]", None
    return f"[{what}, {kind}, {len(found)} bytes", Attached(found, kind, name)


def _word(value: Any) -> str:
    """A text of the server's in a line of ours."""
    return word(value, _WORDS_MAX).strip()
