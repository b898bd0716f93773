"""Images and documents that the API refuses: which they are, and a request without them. Pure.

The API refuses a whole request for one image that it cannot read, and the log
keeps the image. What was refused is in the log by the digest of its source,
so every later request is made without it, with a note in its place.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_MEDIA = ("image", "document")
_PATH = re.compile(r"messages\.(\d+)\.content\.(\d+)((?:\.[a-z_]+)*?\.content\.(\d+))?")
_ABOUT = re.compile(
    r"\b(?:images?|documents?|pdfs?)\b"
    r"|media.type|unsupported file|\bbase64\b|\bpixels?\b",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"too (?:many|much) (?:images|media|documents)", re.IGNORECASE)


def source_digest(block: Json) -> str:
    """What an image or a document is known by: the SHA-256, in hex, of its source."""
    text = json.dumps(block.get("source"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def refused(message: str, request: Json) -> list[str]:
    """Digests of the media that a refusal (400) is about; empty when it is about none.

    Where it names none, those it may be: what came since the model last spoke, else all.
    """
    media = list(_media(request))
    if not media or not _ABOUT.search(message):
        return []
    if found := _PATH.search(message):
        index, place = int(found[1]), int(found[2])
        inner = int(found[4]) if found[4] else None
        exact = [d for at, d in media if at[:2] == (index, place) and inner in (None, at[2])]
        if exact:
            return list(dict.fromkeys(exact))
        if inner is None:
            return []  # it names something that is no image
    spoke = max(
        (n for n, said in enumerate(request["messages"]) if said["role"] == "assistant"), default=-1
    )
    if _TOO_MANY.search(message):
        old = [digest for at, digest in media if at[0] < spoke]
        return list(dict.fromkeys(old or [media[0][1]]))
    new = [digest for at, digest in media if at[0] > spoke]
    return list(dict.fromkeys(new or [digest for _, digest in media]))


def names_place(message: str) -> bool:
    """Whether a refusal says which block of which message it is about."""
    return _PATH.search(message) is not None


def without(request: Json, reasons: Mapping[str, str]) -> Json:
    """The request with a note for each media block whose digest has a reason."""
    if not reasons or not any(digest in reasons for _, digest in _media(request)):
        return request

    def noted(message: Json) -> Json:
        content = message["content"]
        if not isinstance(content, list):
            return message
        return {**message, "content": [_noted(block, reasons) for block in content]}

    return {**request, "messages": [noted(message) for message in request["messages"]]}


def _noted(block: Json, reasons: Mapping[str, str]) -> Json:
    kind = block.get("type")
    if kind in _MEDIA and (reason := reasons.get(source_digest(block))) is not None:
        return {
            "type": "text",
            "text": f"[left out: the model's service refused this {kind}: {reason}]",
        }
    if kind == "tool_result" and isinstance(block.get("content"), list):
        return {**block, "content": [_noted(inner, reasons) for inner in block["content"]]}
    return block


def _media(request: Json) -> Iterator[tuple[tuple[int, int, int | None], str]]:
    """Where each media block stands: message, block, block in a tool's result; and its digest."""
    for index, message in enumerate(request.get("messages") or ()):
        content = message["content"]
        for place, block in enumerate(content if isinstance(content, list) else ()):
            if block.get("type") in _MEDIA:
                yield (index, place, None), source_digest(block)
            inside = block.get("content")
            if block.get("type") == "tool_result" and isinstance(inside, list):
                for inner, each in enumerate(inside):
                    if each.get("type") in _MEDIA:
                        yield (index, place, inner), source_digest(each)
