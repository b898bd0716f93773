"""What an MCP server answered, as a call's result: text, and what is attached. Pure.

Text is the model's to read; structured content only where there is no text, for the one mostly
says the other again. What a result cannot hold is a line in brackets, which says what it was.
`hands/mcp/content.py` does the same in a hand's sandbox, where nothing of Carpal but `hands/` is.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

Json = dict[str, Any]

EMPTY = "[the tool answered nothing]"
ATTACHED_MAX = 20
_WORDS_MAX = 500
"""Characters of a name or an address in a line."""


class Attached(NamedTuple):
    """A picture or a file of a result."""

    data: bytes
    media_type: str
    name: str


def rendered(result: Json) -> tuple[str, list[Attached]]:
    """The text of a tool's result, never empty; and what it attaches."""
    parts: list[str] = []
    attached: list[Attached] = []
    said = result.get("content")
    blocks = [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []
    for block in blocks:
        text, file = _block(block)
        if file is not None and len(attached) == ATTACHED_MAX:
            text += f": left out: there are {ATTACHED_MAX} before it]"
        elif file is not None:
            text += ": attached]"
            attached.append(file)
        if text:
            parts.append(text)
    structured = result.get("structuredContent")
    if structured is not None and not any(
        b.get("type") == "text" and b.get("text") for b in blocks
    ):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return "\n".join(parts) or EMPTY, attached


def _block(block: Json) -> tuple[str, Attached | None]:
    """Its text, and its file: then the text is the begin of a line that says what became of it."""
    match block.get("type"):
        case "text":
            return str(block.get("text", "")), None
        case "image" | "audio" as kind:
            media = _word(block.get("mimeType")) or "application/octet-stream"
            return _file(block.get("data"), media, str(kind), f"an {kind}")
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
    media = _word(resource.get("mimeType")) or "application/octet-stream"
    name = uri.rpartition("/")[2] or "resource"
    return _file(resource.get("blob"), media, name, f"resource {uri}")


def _file(data: Any, media: str, name: str, what: str) -> tuple[str, Attached | None]:
    try:
        found = base64.b64decode(str(data or ""), validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}, {media}: it is no base64, and left out]", None
    if not found:
        return f"[{what}, {media}: it is empty]", None
    return f"[{what}, {media}, {len(found)} bytes", Attached(found, media, name)


def _word(value: Any) -> str:
    """A text of the server's in a line of ours: one line, and not too long."""
    text = "".join(each if each.isprintable() else " " for each in str(value or ""))
    return text[:_WORDS_MAX].strip()
