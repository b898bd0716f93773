"""Hand types as messages."""

import json
from collections.abc import Callable, Iterable
from functools import lru_cache

from carpal.v1 import hand_pb2 as pb
from hands.contract import Description, Health, Tool

_UNIT = {
    "type": "object",
    "description": "Labels that the hand's unit must have.",
    "additionalProperties": {"type": "string"},
}
"""The daemon's own part of the config of a type with units."""


def type_info(
    description: Description,
    offers: Callable[[str, str], bool] = lambda _type, _tool: True,
    units: Iterable[pb.UnitInfo] | None = None,
) -> pb.HandTypeInfo:
    """What Describe, and the daemon's hello, say of a type; of its tools, those it offers.

    `units` are those of a type that has some, though none is there: its config may name labels.
    """
    schema = description.config_schema
    if units is not None:
        schema = {**schema, "properties": {**schema.get("properties", {}), "unit": _UNIT}}
    tools = [each for each in description.tools if offers(description.type, each.name)]
    return pb.HandTypeInfo(
        type=description.type,
        description=description.description,
        tools=tool_infos(tools),
        config_schema=json.dumps(schema).encode(),
        # The daemon adds what it does for every type.
        capabilities=["claim", "acknowledge", "replay", *description.capabilities],
        units=units or (),
        forbidden_tools=[
            tool.name for tool in description.tools if not offers(description.type, tool.name)
        ],
    )


def tool_infos(tools: Iterable[Tool]) -> list[pb.ToolInfo]:
    """Tools of a type, or of a hand that has its own."""
    return [
        pb.ToolInfo(
            name=tool.name,
            description=tool.description,
            input_schema=json.dumps(tool.input_schema).encode(),
        )
        for tool in tools
    ]


@lru_cache(maxsize=32)
def own_tools(result: bytes) -> tuple[Tool, ...]:
    """The tools that a hand was provisioned with, from its serialized ProvisionResult."""
    # Each call is checked against them, and a hand's result stays the same.
    return tuple(
        Tool(tool.name, tool.description, json.loads(tool.input_schema))
        for tool in pb.ProvisionResult.FromString(result).tools
    )


def health(found: Health) -> pb.ProbeResponse:
    """What Probe says."""
    state = pb.PROBE_STATE_STARTING
    if found.ready:
        state = pb.PROBE_STATE_READY
    elif found.broken:
        state = pb.PROBE_STATE_BROKEN
    return pb.ProbeResponse(state=state, reason=found.reason, not_enforceable=found.not_enforceable)
