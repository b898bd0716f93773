"""Which tools the model is offered, and which hand a tool name means. Pure.

The default hand's tools keep their own names; another hand's are
`<hand>__<tool>`, so every name says where it runs.
"""

from typing import Any

from brain.context.conversation import tool_name
from brain.offers import tools_of, unfit
from brain.transcript import Transcript
from carpal.v1 import hand_pb2

Json = dict[str, Any]


def offered(transcript: Transcript) -> list[Json]:
    """Messages API tools, from the newest `context.tools` of each named hand.

    Each name once. What the API would refuse is left out, for it refuses the whole request.
    """
    tools: list[Json] = []
    for name, (hand, tool) in _by_name(transcript).items():
        where = "" if hand == transcript.default_hand else f"On hand {hand!r}: "
        tools.append(
            {
                "name": name,
                "description": where + tool["description"],
                "input_schema": tool["input_schema"],
            }
        )
    return tools


def meant(transcript: Transcript, name: str) -> tuple[str, str]:
    """Hand and tool that a name the model used means.

    A name nobody offered means the default hand, which will say that it has
    no such tool.
    """
    if name in (known := _by_name(transcript)):
        hand, told = known[name]
        return hand, str(told["name"])
    hand, separator, tool = name.partition("__")
    if separator and hand in transcript.hand_specs:
        return hand, tool
    return transcript.default_hand, name


def _by_name(transcript: Transcript) -> dict[str, tuple[str, Json]]:
    """Names as the model is told them → hand and tool."""
    named: dict[str, tuple[str, Json]] = {}
    for hand in transcript.hand_specs:
        for tool in transcript.tools.get(hand, {}).get("tools", ()):
            if not unfit(tool):
                named.setdefault(tool_name(transcript, hand, tool["name"]), (hand, tool))
    return named


def context_tools(hand: str, info: hand_pb2.HandTypeInfo) -> Json:
    """Data of the `context.tools` event for what a daemon says of a type.

    INVALID_FIELD when the type is no good.
    """
    return {"hand": hand, "type": info.type, "tools": tools_of(info)}
