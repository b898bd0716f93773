"""Which of the pictures that left hands a request shows: the newest, of others a line each. Pure.

A request that shows them all ends a session that looks at a screen a hundred times: services take
20 to 32 MB and 100 pictures. Where the line is drawn does not creep: it moves when there are too
many, and then half of them go, so that between two moves each request begins with the one before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from brain.models.media import BLOB

Json = dict[str, Any]

SHOWN_MAX = 40
BYTES_MAX = 12 * 1024 * 1024
"""Of them together; a third more as base64."""


class _Piece(Protocol):
    @property
    def position(self) -> int: ...
    @property
    def block(self) -> Json: ...


P = TypeVar("P", bound=Any)


def source(media_type: str, blob: str, size: int) -> Json:
    """The source of a picture that is a blob, `sha256:…`."""
    return {"type": BLOB, "media_type": media_type, "data": blob, "size": size}


def within(pieces: Sequence[P]) -> list[P]:
    """The pieces of a conversation with no more pictures than a request takes."""
    sizes = [each["source"]["size"] for piece in pieces for each in _pictures(piece)]
    gone = _gone(sizes)
    if not gone:
        return list(pieces)
    made: list[P] = []
    for piece in pieces:
        here = len(list(_pictures(piece)))
        made.append(_stubbed(piece, min(gone, here)) if here and gone else piece)
        gone -= min(gone, here)
    return made


def _gone(sizes: Sequence[int]) -> int:
    """How many of the oldest are lines by now, found by living through it again."""
    first = total = 0
    for index, size in enumerate(sizes):
        total += size
        if index - first < SHOWN_MAX and total <= BYTES_MAX:
            continue
        while first < index and (index - first >= SHOWN_MAX // 2 or total > BYTES_MAX // 2):
            total -= sizes[first]
            first += 1
    return first


def _pictures(piece: _Piece) -> Iterator[Json]:
    block = piece.block
    inner = block.get("content") if block["type"] == "tool_result" else [block]
    for each in inner if isinstance(inner, list) else ():
        if each["type"] == "image" and each["source"].get("type") == BLOB:
            yield each


def _stubbed(piece: P, count: int) -> P:
    """The piece, its first so many pictures lines."""
    old = list(_pictures(piece))[:count]

    def line(block: Json) -> Json:
        if not any(block is each for each in old):
            return block
        text = (
            f"[left out: an older picture ({block['source']['media_type']}); "
            f"it is at position {piece.position} of the session's log]"
        )
        return {"type": "text", "text": text}

    block = piece.block
    if block["type"] != "tool_result":
        return replace(piece, block=line(block))
    return replace(piece, block={**block, "content": [line(each) for each in block["content"]]})
