"""All of the conversation, but of its older part no bulk. Pure.

Before a cut, tool results and thinking are stubs, which say what was left out
and at which position of the log it stands. The cut does not creep: it moves
when a request has grown to `at` tokens, and then leaves `keep` of the newest
as they are. Between two moves every request begins with the one before it, to
the byte, so the model's cache holds.

Where the cut is follows from the conversation alone: it is found by living
through it again, request by request.
"""

from dataclasses import dataclass
from typing import Any

from brain.context.conversation import Piece, conversation
from brain.context.cuts import Cut, due
from brain.context.settings import Settings
from brain.context.tokens import estimate
from brain.session.transcript import Transcript
from brain.tools.own import PREFIX, READ, reads_log

Json = dict[str, Any]
NAME = "trim/4"

_SMALL = 64
"""Tokens up to which a result stays: a stub would be no smaller."""


@dataclass(frozen=True)
class _Left:
    """What is left out at a request."""

    cut: int = 0
    """How many pieces stand before the cut."""
    again: int = 0
    """Up to which piece what can be had again is left out too."""


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    all_of_it = conversation(transcript)
    reads = PREFIX + READ if reads_log(transcript.agent) else ""
    stubs = [_stub(piece, reads) for piece in all_of_it]
    left = _left(all_of_it, stubs, settings)
    return [
        stub if index < left.cut or (piece.again and index < left.again) else piece
        for index, (piece, stub) in enumerate(zip(all_of_it, stubs, strict=True))
    ]


def cut(transcript: Transcript, settings: Settings, size: int) -> Cut | None:
    """See Policy. When even the stubs are too much, the oldest of them go, and nobody is asked."""
    through = due(transcript, settings, size)
    return None if through is None else Cut(through, "omitted")


def _left(pieces: list[Piece], stubs: list[Piece], settings: Settings) -> _Left:
    """What is left out at the newest request."""
    left, both = _Left(), list(zip(pieces, stubs, strict=True))
    size = start = 0
    for index, piece in enumerate(pieces):
        answered = index and pieces[index - 1].role == "user" and piece.role == "assistant"
        if answered:
            if size > settings.at:
                left, size = _moved(both[:index], left, start, size, settings)
            start = index
        size += piece.tokens
    if size > settings.at:
        left, _ = _moved(both, left, start, size, settings)
    return left


def _moved(
    both: list[tuple[Piece, Piece]], left: _Left, reply: int, size: int, settings: Settings
) -> tuple[_Left, int]:
    """More left out, of what is before the newest reply, and the size that leaves.

    `both`: each piece up to the request, and its stub.

    The newest reply stays whole: the API wants its thinking with the results of its calls.
    """
    cut, again = left.cut, max(left.again, reply)
    for piece, stub in both[max(cut, left.again) : again]:
        size -= piece.tokens - stub.tokens if piece.again else 0
    if size <= (settings.at + settings.keep) // 2:
        return _Left(cut, again), size
    shown = [
        (stub if piece.again and index < again else piece).tokens
        for index, (piece, stub) in enumerate(both)
    ]
    kept = sum(shown[cut:])
    while cut < reply and kept > settings.keep:
        kept -= shown[cut]
        size -= shown[cut] - both[cut][1].tokens
        cut += 1
    return _Left(cut, again), size


def _stub(piece: Piece, reads: str) -> Piece:
    """The piece without its bulk; itself if it has none. `reads`: the tool that has it still."""
    block = piece.block
    how = f": {reads} reads it" if reads else ""
    where = f"at position {piece.position} of the session's log{how}]"
    if block["type"] == "tool_result" and piece.tokens > _SMALL:
        text = (
            f"[left out: about {estimate(block['content'])} tokens of this result; all is {where}"
        )
        content = [{"type": "text", "text": text}]
        return Piece(piece.role, piece.position, {**block, "content": content})
    if block["type"] in ("thinking", "redacted_thinking"):
        text = f"[left out: thinking, {where}"
        return Piece(piece.role, piece.position, {"type": "text", "text": text})
    return piece
