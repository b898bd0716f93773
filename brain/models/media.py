"""Images and documents: those of blobs put in, and those that the API refuses left out. Pure.

A picture that left a hand stands in a request by its blob's name, which is the SHA-256 of its
bytes: so it is hashed, and made again from the log alone. Its bytes take that place as it is sent.

The API refuses a whole request for one image that it cannot read, and the log
keeps the image. What was refused is in the log by the digest of its source,
so every later request is made without it, with a note in its place.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]

BLOB = "blob"
"""Kind of a source, of ours alone: `media_type`, `data`, the blob's name in the log, and `size`,
its bytes."""
GONE = "this picture is not in the store any more"
"""How the reason begins why one that no service refused is left out."""
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
    media = [(at, source_digest(block)) for at, block in _media(request)]
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
    if not reasons or not any(source_digest(block) in reasons for _, block in _media(request)):
        return request

    def noted(block: Json) -> Json:
        reason = reasons.get(source_digest(block))
        if reason is None:
            return block
        left = f"[left out: the model's service refused this {block['type']}: {reason}]"
        if reason.startswith(GONE):
            left = f"[left out: {reason}]"
        return {"type": "text", "text": left}

    return _changed(request, noted)


def blobs(request: Json) -> dict[str, Json]:
    """The media blocks of a request that stand in it by their blobs' names, by these."""
    found = (block for _, block in _media(request) if _is_blob(block))
    return {block["source"]["data"]: block for block in found}


def filled(request: Json, contents: Mapping[str, bytes]) -> Json:
    """The request as it is sent: bytes in the place of blobs. KeyError for one that is not here."""

    def full(block: Json) -> Json:
        if not _is_blob(block):
            return block
        source = block["source"]
        data = base64.standard_b64encode(contents[source["data"]]).decode("ascii")
        given = {"type": "base64", "media_type": source["media_type"], "data": data}
        return {**block, "source": given}

    return _changed(request, full)


def _changed(request: Json, change: Callable[[Json], Json]) -> Json:
    """The request with each media block changed, those in tools' results too."""

    def of(block: Json) -> Json:
        if block.get("type") in _MEDIA:
            return change(block)
        if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            return {**block, "content": [of(inner) for inner in block["content"]]}
        return block

    def said(message: Json) -> Json:
        content = message["content"]
        if not isinstance(content, list):
            return message
        return {**message, "content": [of(block) for block in content]}

    return {**request, "messages": [said(message) for message in request["messages"]]}


def _is_blob(block: Json) -> bool:
    source = block.get("source")
    return isinstance(source, dict) and source.get("type") == BLOB


def _media(request: Json) -> Iterator[tuple[tuple[int, int, int | None], Json]]:
    """Where each media block stands: message, block, block in a tool's result; and the block."""
    for index, message in enumerate(request.get("messages") or ()):
        content = message["content"]
        for place, block in enumerate(content if isinstance(content, list) else ()):
            if block.get("type") in _MEDIA:
                yield (index, place, None), block
            inside = block.get("content")
            if block.get("type") == "tool_result" and isinstance(inside, list):
                for inner, each in enumerate(inside):
                    if each.get("type") in _MEDIA:
                        yield (index, place, inner), each
