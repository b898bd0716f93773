"""The whole conversation, in the order the model lived it. Pure.

A reply stands right after what it answered (`through`), even when messages
came in while the model was writing. In a user turn tool results come first,
as the Messages API wants them, then what people said meanwhile. What it would
not take at all is made fit (`brain/context/fit.py`).
"""

from bisect import bisect_right
from typing import Any

from brain.context import fit
from brain.entries import Entry, ModelRequest
from brain.transcript import Transcript

Json = dict[str, Any]
NAME = "whole/2"


def messages(transcript: Transcript) -> list[Json]:
    """Messages API messages of everything up to the transcript's head."""
    replies = [r for r in transcript.requests.values() if r.done and not r.failed and r.blocks]
    turns: list[Json] = []
    inputs = transcript.inputs
    taken = 0
    for reply in replies:
        upto = bisect_right(inputs, reply.through, lo=taken, key=lambda entry: entry.position)
        _add(turns, "user", _user_blocks(inputs[taken:upto]))
        _add(turns, "assistant", _reply_blocks(reply, transcript))
        taken = upto
    _add(turns, "user", _user_blocks(inputs[taken:]))
    return turns


def tool_name(transcript: Transcript, hand: str, name: str) -> str:
    """A tool's name for the model: the default hand's have no prefix."""
    return fit.tool(name if hand in ("", transcript.default_hand) else f"{hand}__{name}")


def _add(turns: list[Json], role: str, blocks: list[Json]) -> None:
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"].extend(blocks)
    else:
        turns.append({"role": role, "content": blocks})


def _user_blocks(entries: list[Entry]) -> list[Json]:
    results = [fit.result(e.data) for e in entries if e.type == "agent.tool_result"]
    blocks: list[Json] = []
    for entry in entries:
        if entry.type != "agent.tool_result":
            blocks.extend(fit.said(entry.data["content"]))
    return results + blocks


def _reply_blocks(reply: ModelRequest, transcript: Transcript) -> list[Json]:
    blocks: list[Json] = []
    for entry in reply.blocks:
        data = entry.data
        if entry.type == "agent.tool_use":
            name = tool_name(transcript, data.get("hand", ""), data["name"])
            blocks.append(fit.call(entry.id, name, data["input"]))
        else:
            blocks.extend(data["content"])
    return fit.replied(blocks)
