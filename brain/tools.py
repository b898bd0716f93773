"""Which tools the model is offered, and which hand a tool name means. Pure.

The default hand's tools keep their own names; another hand's are
`<hand>__<tool>`, so every name says where it runs.
"""

import json
from typing import Any

from brain.context.whole import tool_name
from brain.transcript import Transcript
from carpal.v1 import hand_pb2

Json = dict[str, Any]


def offered(transcript: Transcript) -> list[Json]:
    """Messages API tools, from the newest `context.tools` of each named hand."""
    tools: list[Json] = []
    for hand in transcript.hand_specs:
        known = transcript.tools.get(hand)
        for tool in known["tools"] if known else ():
            where = "" if hand == transcript.default_hand else f"On hand {hand!r}: "
            tools.append(
                {
                    "name": tool_name(transcript, hand, tool["name"]),
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
    hand, separator, tool = name.partition("__")
    if separator and hand in transcript.hand_specs:
        return hand, tool
    return transcript.default_hand, name


def context_tools(hand: str, info: hand_pb2.HandTypeInfo) -> Json:
    """Data of the `context.tools` event for what a daemon says of a type."""
    return {
        "hand": hand,
        "type": info.type,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": json.loads(tool.input_schema),
            }
            for tool in info.tools
        ],
    }
