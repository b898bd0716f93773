"""What of a log the Messages API takes, and what stands for the rest. Pure.

The API refuses a whole request for one block that it does not like. The log
keeps it, so the next request would be refused for it too, and every one
after. Whatever a model, a person or a hand left there, what is made here of
it is taken.
"""

import hashlib
import re
from typing import Any

from brain.context.pictures import source as blob_source
from brain.session.results import NO_OUTPUT
from brain.tools.names import fit_name
from carpal.pictures import BYTES_MAX, MEDIA_TYPES

Json = dict[str, Any]

NO_TEXT = "[no text]"
"""Stands for a message in which nothing was said."""
_SOURCES = {
    "base64": ("media_type", "data"),
    "text": ("media_type", "data"),
    "url": ("url",),
    "file": ("file_id",),
}
"""Kinds of sources of images and documents → their fields."""
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_BLOB = re.compile(r"sha256:[0-9a-f]{64}")


def said(content: list[Json]) -> list[Json]:
    """The blocks of a message, one at least: text that is not blank, images, documents."""
    blocks = []
    for block in content:
        text = _text(block)
        if shown := _media(block):
            blocks.append(shown)
        elif text.strip():
            blocks.append({"type": "text", "text": text})
    return blocks or [{"type": "text", "text": NO_TEXT}]


def result(data: Json) -> Json:
    """The block of an `agent.tool_result`."""
    content = [
        _media(block) or {"type": "text", "text": _text(block) or NO_OUTPUT}
        for block in data["content"]
    ]
    content += attached(data)
    block: Json = {
        "type": "tool_result",
        "tool_use_id": call_id(data["tool_use_id"]),
        "content": content or [{"type": "text", "text": NO_OUTPUT}],
    }
    if data.get("is_error"):
        block["is_error"] = True
    return block


def attached(data: Json) -> list[Json]:
    """What a result has attached: pictures, and a line for what cannot be shown."""
    told = data.get("attachments")
    # The API takes nothing but text in the result of a call that failed.
    shows = not data.get("is_error")
    return [
        _attached(each, shows=shows)
        for each in (told if isinstance(told, list) else ())
        if isinstance(each, dict)
    ]


def _attached(told: Json, *, shows: bool) -> Json:
    kind, size, blob = told.get("media_type"), told.get("size"), told.get("blob")
    named = isinstance(blob, str) and _BLOB.fullmatch(blob) is not None
    fits = isinstance(size, int) and 0 < size <= BYTES_MAX
    if shows and named and fits and kind in MEDIA_TYPES:
        return {"type": "image", "source": blob_source(str(kind), str(blob), int(size or 0))}
    name = f"{told['name']}: " if told.get("name") else ""
    return {"type": "text", "text": f"[{name}{kind}, {size} bytes: attached, and not shown]"}


def _media(block: Json) -> Json | None:
    """An image or a document with what the API takes of it; None of anything else."""
    source = block.get("source")
    if block["type"] not in ("image", "document") or not isinstance(source, dict):
        return None
    fields = _SOURCES.get(str(source.get("type")), ())
    if not fields or not all(isinstance(source.get(name), str) for name in fields):
        return None
    said: Json = {"type": source["type"], **{name: source[name] for name in fields}}
    more = ("title", "context") if block["type"] == "document" else ()
    words = {name: block[name] for name in more if isinstance(block.get(name), str)}
    return {"type": block["type"], "source": said, **words}


def taken_back(blocks: list[Json], *, goes_on: bool = False) -> list[int]:
    """Which of a reply's blocks the API takes back as it gave them, by their index; maybe none.

    Not blank text, thinking without its signature, and thinking at the end, where a reply was cut;
    nor, unless the reply goes on, a use of the service's own tools that was cut before its result.
    """
    found = {str(block.get("tool_use_id")) for block in blocks}
    kept = [
        index
        for index, block in enumerate(blocks)
        if _is_taken_back(block)
        and (goes_on or block["type"] != "server_tool_use" or str(block.get("id")) in found)
    ]
    while kept and blocks[kept[-1]]["type"] in _THINKING:
        kept.pop()
    return kept


def call(event_id: str, name: str, given: Any) -> Json:
    """The block of an `agent.tool_use`; input that is no object cannot be said, and is left out."""
    given = given if isinstance(given, dict) else {}
    return {"type": "tool_use", "id": call_id(event_id), "name": fit_name(name), "input": given}


def call_id(event_id: str) -> str:
    """An event's id as the API takes ids of calls. Imported logs may have any."""
    if _NAME.fullmatch(event_id):
        return event_id
    return "call_" + hashlib.sha256(event_id.encode()).hexdigest()[:32]


_THINKING = {"thinking": "signature", "redacted_thinking": "data"}
"""Blocks of thinking → what the API knows them by."""


def _is_taken_back(block: Json) -> bool:
    if block["type"] == "text":
        return bool(block["text"].strip())
    sign = _THINKING.get(block["type"])
    return sign is None or bool(block.get(sign))


def _text(block: Json) -> str:
    if block["type"] == "text":
        return str(block["text"])
    return f"[a block of type {block['type']!r}, which is not passed on]"
