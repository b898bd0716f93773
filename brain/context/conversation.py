"""The conversation as the model lived it, block by block: what every policy chooses from. Pure.

A reply stands right after what it answered (`through`), even when messages
came in while the model was writing. In a user turn tool results come first,
as the Messages API wants them, then what people said meanwhile. What it would
not take at all is made fit (`brain/context/fit.py`).

A reply in which the model refused to go on is left out, and what it was to answer
is one line each: given that again, a model refuses whatever comes after it too.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

from brain.context import fit, pictures
from brain.context.tokens import estimate
from brain.session.entries import Entry, ModelRequest
from brain.session.transcript import Transcript
from brain.tools.names import tool_name

Json = dict[str, Any]


_GOES_ON = ("pause_turn", "tool_use")
"""Stop reasons after which what the service's own tools find may come in a later reply."""


@dataclass(frozen=True)
class Piece:
    """One block of the conversation, and the event it is from."""

    role: Literal["user", "assistant"]
    position: int
    block: Json
    again: bool = False
    """What a tool of the brain's own said, which can be had again."""

    @cached_property
    def tokens(self) -> int:
        """About how many it takes."""
        return estimate(self.block)


_made: WeakKeyDictionary[Transcript, tuple[int, list[Piece]]] = WeakKeyDictionary()
"""The conversation at a head: whether to cut and what to send are asked of the same one."""


def conversation(transcript: Transcript) -> list[Piece]:
    """All of the window: what stands for the log before its cut, then the log as it is."""
    head, pieces = _made.get(transcript, (0, []))
    if head != transcript.head:
        pieces = _conversation(transcript)
        _made[transcript] = transcript.head, pieces
    return list(pieces)


def _conversation(transcript: Transcript) -> list[Piece]:
    window = transcript.window
    pieces: list[Piece] = []
    cut = 0
    if window is not None:
        cut = window.through
        pieces.append(Piece("user", window.through, {"type": "text", "text": window.text}))
    inputs = transcript.inputs
    taken = bisect_right(inputs, cut, key=_position)
    never: set[str] = set()
    for reply in transcript.requests.values():
        refused = reply.purpose == "reply" and reply.stop_reason == "refusal"
        if reply.position <= cut or not reply.done or reply.failed:
            continue
        if not (reply.blocks or refused):
            continue
        upto = bisect_right(inputs, reply.through, lo=taken, key=_position)
        answered = _user(inputs[taken:upto], never)
        if refused:
            pieces += [_left_out(piece) for piece in answered]
            never |= {entry.id for entry in reply.blocks}
        else:
            pieces += answered
            pieces += _reply(reply, transcript)
        taken = upto
    return pictures.within(pieces + _user(inputs[taken:], never))


def joined(pieces: Iterable[Piece]) -> list[Json]:
    """Messages API messages, roles alternating."""
    turns: list[Json] = []
    for piece in pieces:
        if turns and turns[-1]["role"] == piece.role:
            turns[-1]["content"].append(piece.block)
        else:
            turns.append({"role": piece.role, "content": [piece.block]})
    return turns


def _position(entry: Entry) -> int:
    return entry.position


def _left_out(piece: Piece) -> Piece:
    """What a model refused to go on from, as all that is told of it again."""
    text = (
        "[left out: the model refused to go on from this; it is at position "
        f"{piece.position} of the session's log]"
    )
    block: Json = {"type": "text", "text": text}
    if piece.block["type"] == "tool_result":
        block = {**piece.block, "content": [block]}
    return replace(piece, block=block)


def _user(entries: list[Entry], never: set[str]) -> list[Piece]:
    """`never`: calls that are left out, and their results with them."""
    results = [
        e for e in entries if e.type == "agent.tool_result" and e.data["tool_use_id"] not in never
    ]
    said = [e for e in entries if e.type != "agent.tool_result"]
    pieces = [
        Piece("user", e.position, fit.result(e.data), again=bool(e.data.get("again")))
        for e in results
    ]
    for entry in said:
        blocks = fit.said(entry.data["content"])
        if entry.type == "hand.late_result":
            blocks += fit.attached({**entry.data, "is_error": False})
        pieces += [Piece("user", entry.position, block) for block in blocks]
    return pieces


def _reply(reply: ModelRequest, transcript: Transcript) -> list[Piece]:
    made: list[tuple[int, Json]] = []
    for entry in reply.blocks:
        data = entry.data
        if entry.type == "agent.tool_use":
            name = tool_name(transcript, data.get("hand", ""), data["name"])
            made.append((entry.position, fit.call(entry.id, name, data["input"])))
        else:
            made += [(entry.position, block) for block in data["content"]]
    blocks = [block for _, block in made]
    kept = fit.taken_back(blocks, goes_on=reply.stop_reason in _GOES_ON)
    return [Piece("assistant", *made[index]) for index in kept]
