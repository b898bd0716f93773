"""What a plugin's process says of its type, checked: it may be anything. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hands.contract import LISTS_TOOLS, Description, Tool

DESCRIBED_MAX = 512 * 1024
"""Bytes of all of it."""
_TYPE_MAX, _TEXT_MAX, _SCHEMA_MAX = 256 * 1024, 32 * 1024, 64 * 1024
"""Bytes that a brain takes of one type's tools, of one description, of one schema."""
_TOOLS_MAX = 128
_DEPTH = 30
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_KINDS = frozenset({"object", "array", "string", "integer", "number", "boolean"})
_CLAIMS = frozenset(
    {"control", "events", "files", "mounts", "save", "shell", "units", "view", "visual"}
)
_LONGEST = 24 * 3600.0
_WHY_MAX = 1000
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of no config."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a plugin's type."""

    description: Description
    unready: str = ""
    """Why no hand can be made; empty when one can."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each tool may take."""
    broken: bool = False
    """It is no type at all: `unready` says why, and what to do."""


def read(name: str, data: bytes) -> Told:
    """What a process wrote. Raises ValueError, which says what is wrong with it."""
    if len(data) > DESCRIBED_MAX:
        raise ValueError(f"it says more than {DESCRIBED_MAX} bytes of itself")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("what it says of itself is no JSON") from None
    if not isinstance(said, dict):
        raise ValueError("what it says of itself is no object")
    if "wrong" in said:
        raise ValueError(str(said["wrong"])[:_WHY_MAX])
    return checked(name, said)


def checked(name: str, said: Mapping[str, Any], *, lists: bool = False) -> Told:
    """What is said of a type: `described`, and `unready`. Raises ValueError.

    `lists`: each of its hands has tools of its own, and the type none.
    """
    told = said.get("described")
    if not isinstance(told, dict):
        raise ValueError("it does not describe itself")
    listed = told.get("tools")
    if lists and listed:
        raise ValueError(f"it has the capability {LISTS_TOOLS}, and tools that no hand listed")
    tools, limits = ([], {}) if lists else own_tools(listed)
    claimed = told.get("capabilities", [])
    if not isinstance(claimed, list) or not all(each in _CLAIMS for each in map(str, claimed)):
        raise ValueError(f"it may claim the capabilities {', '.join(sorted(_CLAIMS))} alone")
    description = Description(
        type=name,
        description=_text(told, "description", "the type"),
        tools=tools,
        config_schema=_schema(told.get("config_schema"), "the config"),
        capabilities=("adopt", *map(str, claimed), *([LISTS_TOOLS] if lists else [])),
    )
    return Told(description, str(said.get("unready", ""))[:_WHY_MAX], limits)


def broken(name: str, why: str) -> Told:
    """A type of which no more is known than that."""
    text = f"Cannot be used: {why}"
    return Told(Description(name, text[:_TEXT_MAX], (), NOTHING), why, broken=True)


def own_tools(told: Any) -> tuple[list[Tool], dict[str, float]]:
    """Tools, of a type or of one hand, and the seconds each may take. Raises ValueError."""
    if not isinstance(told, list) or not 0 < len(told) <= _TOOLS_MAX:
        raise ValueError(f"it has no list of 1 to {_TOOLS_MAX} tools")
    tools: list[Tool] = []
    limits: dict[str, float] = {}
    size = 0
    for each in told:
        if not isinstance(each, dict) or not _NAME.fullmatch(str(each.get("name"))):
            raise ValueError("the name of a tool is not 1 to 128 of a-z, A-Z, 0-9, '_' and '-'")
        name, limit = str(each["name"]), each.get("time_limit")
        if name in limits:
            raise ValueError(f"two tools are named {name}")
        if not isinstance(limit, int | float) or not 0 < limit <= _LONGEST:
            raise ValueError(f"tool {name}: its time limit is not above 0 and at most {_LONGEST:g}")
        text = _text(each, "description", f"tool {name}")
        schema = _schema(each.get("input_schema"), f"tool {name}")
        size += len(text.encode()) + len(json.dumps(schema))
        limits[name] = float(limit)
        tools.append(Tool(name, text, schema))
    if size > _TYPE_MAX:
        raise ValueError(f"its tools have more than {_TYPE_MAX} bytes of descriptions and schemas")
    return tools, limits


def _text(told: Mapping[str, Any], name: str, of: str) -> str:
    text = told.get(name)
    if not isinstance(text, str) or not text:
        raise ValueError(f"{of} has no {name}")
    try:
        if len(text.encode()) > _TEXT_MAX:
            raise ValueError(f"the {name} of {of} has more than {_TEXT_MAX} bytes")
    except UnicodeEncodeError:
        raise ValueError(f"the {name} of {of} is no text") from None
    return text


def _schema(told: Any, of: str) -> Mapping[str, Any]:
    if not isinstance(told, dict) or told.get("type") != "object":
        raise ValueError(f"the schema of {of} is not that of an object")
    _part(told, of, 0)
    if len(json.dumps(told)) > _SCHEMA_MAX:
        raise ValueError(f"the schema of {of} has more than {_SCHEMA_MAX} bytes")
    return told


def _part(told: Any, of: str, depth: int) -> None:
    """Only what `hands/inside/schema.py` understands, for calls are checked against it."""
    if depth > _DEPTH:
        raise ValueError(f"the schema of {of} is nested too deeply")
    kind = told.get("type") if isinstance(told, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        there = ", ".join(sorted(_KINDS))
        raise ValueError(f"a part of the schema of {of} has as its type not one of {there}")
    properties, required = told.get("properties", {}), told.get("required", [])
    choices = told.get("enum", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise ValueError(f"the schema of {of} has properties that are none")
    if not all(isinstance(each, str) for each in required) or not isinstance(choices, list):
        raise ValueError(f"the schema of {of} requires, or lists, what is none")
    more = told.get("additionalProperties", True)
    for each in (*properties.values(), *([more] if isinstance(more, dict) else [])):
        _part(each, of, depth + 1)
    if "items" in told:
        _part(told["items"], of, depth + 1)
