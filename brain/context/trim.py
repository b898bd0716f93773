"""All of the conversation, but of its older part no bulk. Pure.

Before a cut, tool results and thinking are stubs, which say what was left out
and at which position of the log it stands. The cut does not creep: it moves
when a request has grown to `at` tokens, and then leaves `keep` of the newest
as they are. Between two moves every request begins with the one before it, to
the byte, so the model's cache holds.

Where the cut is follows from the conversation alone: it is found by living
through it again, request by request.
"""

from typing import Any

from brain.context.conversation import Piece, conversation
from brain.context.cuts import Cut, due
from brain.context.settings import Settings
from brain.context.tokens import estimate
from brain.session.transcript import Transcript

Json = dict[str, Any]
NAME = "trim/1"

_SMALL = 64
"""Tokens up to which a result stays: a stub would be no smaller."""


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    all_of_it = conversation(transcript)
    before = _cut(all_of_it, settings)
    return [_stub(piece) for piece in all_of_it[:before]] + all_of_it[before:]


def cut(transcript: Transcript, settings: Settings, size: int) -> Cut | None:
    """See Policy. When even the stubs are too much, the oldest of them go, and nobody is asked."""
    through = due(transcript, settings, size)
    return None if through is None else Cut(through, "omitted")


def _cut(pieces: list[Piece], settings: Settings) -> int:
    """How many pieces stand before the cut at the newest request."""
    cut = size = start = 0
    for index, piece in enumerate(pieces):
        answered = index and pieces[index - 1].role == "user" and piece.role == "assistant"
        if answered:
            if size > settings.at:
                cut, size = _moved(pieces[:index], cut, start, size, settings.keep)
            start = index
        size += piece.tokens
    if size > settings.at:
        cut, _ = _moved(pieces, cut, start, size, settings.keep)
    return cut


def _moved(pieces: list[Piece], cut: int, reply: int, size: int, keep: int) -> tuple[int, int]:
    """The cut moved on, as far as the newest reply at most, and the size that leaves.

    The newest reply stays whole: the API wants its thinking with the results of its calls.
    """
    left = sum(piece.tokens for piece in pieces[cut:])
    while cut < reply and left > keep:
        left -= pieces[cut].tokens
        size -= pieces[cut].tokens - _stub(pieces[cut]).tokens
        cut += 1
    return cut, size


def _stub(piece: Piece) -> Piece:
    """The piece without its bulk; itself if it has none."""
    block = piece.block
    if block["type"] == "tool_result" and piece.tokens > _SMALL:
        left = f"[left out: about {estimate(block['content'])} tokens of this result; all of it"
        text = f"{left} is at position {piece.position} of the session's log]"
        content = [{"type": "text", "text": text}]
        return Piece(piece.role, piece.position, {**block, "content": content})
    if block["type"] in ("thinking", "redacted_thinking"):
        text = f"[left out: thinking, at position {piece.position} of the session's log]"
        return Piece(piece.role, piece.position, {"type": "text", "text": text})
    return piece
