"""What the model is asked when the window is to be cut, and what then stands for the log. Pure."""

from typing import Any

from brain.context.conversation import Piece, conversation
from brain.context.cuts import Cut
from brain.context.tokens import estimate
from brain.session.transcript import Transcript
from brain.text import shorten

Json = dict[str, Any]

TEXT_MAX = 128 * 1024
"""Bytes of what stands for the log, as JSON."""
_QUOTED_MAX = 16 * 1024
"""Bytes of what was asked and is not answered, as JSON."""
_LEAST = 256
"""Bytes that are left of any block."""


def question(pieces: list[Piece], instructions: str, room: int) -> list[Piece]:
    """The conversation up to the cut, then the instructions; of large blocks the middle goes.

    `room`: tokens that all of it may take. It takes more only when there are too many blocks.
    """
    size = sum(piece.tokens for piece in pieces)
    most = max((piece.tokens for piece in pieces), default=0)
    while size > room and most * 2 > _LEAST:
        most //= 2
        pieces = [_shortened(piece, most) for piece in pieces]
        size = sum(piece.tokens for piece in pieces)
    last = pieces[-1].position if pieces else 0
    return [*pieces, Piece("user", last, {"type": "text", "text": instructions})]


def stands_for(transcript: Transcript, cut: Cut, said: str) -> str:
    """The text that the model is given for the log up to the cut."""
    where = f"positions 1 to {cut.through} of the session's log"
    if cut.kind == "omitted":
        head = (
            f"[The conversation up to here is left out, and nobody summarised it. It is {where}.]"
        )
        said = _first_words(transcript, cut.through)
    elif cut.kind == "note":
        head = f"[You go on with a session that another began: {where}. This is their note to you.]"
    else:
        head = f"[A summary stands for the conversation up to here. The whole of it is {where}.]"
    parts = [head, shorten(said, TEXT_MAX), _unanswered(transcript, cut.through)]
    return "\n\n".join(part for part in parts if part)


def _unanswered(transcript: Transcript, through: int) -> str:
    """What people said before the cut that no reply has answered, word for word.

    Of what is no text, where it stands.
    """
    seen = transcript.answered_through()
    texts = [
        block["text"] if block["type"] == "text" else _elsewhere(block["type"], entry.position)
        for entry in transcript.inputs
        if seen < entry.position <= through and entry.type in ("user.message", "system.message")
        for block in entry.data.get("content", ())
    ]
    if not texts:
        return ""
    return "What was asked last, word for word:\n\n" + shorten("\n\n".join(texts), _QUOTED_MAX)


def _elsewhere(kind: str, position: int) -> str:
    article = "an" if kind[:1] in "aeiou" else "a"
    return f"[{article} {kind}, left out here; it is at position {position} of the session's log]"


def _first_words(transcript: Transcript, through: int) -> str:
    """What the conversation began with: the task, or what stood for it in the last cut."""
    pieces = conversation(transcript)
    if not pieces or pieces[0].position > through or pieces[0].block["type"] != "text":
        return ""
    return "It began:\n\n" + shorten(str(pieces[0].block["text"]), _QUOTED_MAX)


def _shortened(piece: Piece, tokens: int) -> Piece:
    """The piece with about so many tokens at most, if it can be."""
    block = piece.block
    if piece.tokens <= tokens or estimate(block) <= _LEAST:
        return piece
    size = max(_LEAST, tokens * 7 // 2)
    if block["type"] == "text":
        return Piece(piece.role, piece.position, {**block, "text": shorten(block["text"], size)})
    if block["type"] == "tool_result":
        texts = [each.get("text", f"[{each['type']}]") for each in block["content"]]
        text = shorten("\n".join(texts), size)
        content = [{"type": "text", "text": text}]
        return Piece(piece.role, piece.position, {**block, "content": content})
    if block["type"] == "tool_use":
        given = {"left_out": shorten(str(block["input"]), size)}
        return Piece(piece.role, piece.position, {**block, "input": given})
    return piece
