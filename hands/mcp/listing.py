"""What an MCP server says of its tools, as a hand's tools: names, bounds, what is left out. Pure.

A name that no model could be told is told by another, the same each time: what is not of a-z, A-Z,
0-9, `_` and `-` is `_` then, and a part of the name's digest stands after it. So a name is short
enough to have a hand's before it, and no two are the same.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hands.contract import Tool
from hands.mcp.said import NO_TEXT
from hands.mcp.words import plain, word

NAME_MAX = 62
"""Characters: a hand's name has up to 63, two stand between, and the model is told 128."""
DESCRIPTION_MAX, SCHEMA_MAX, ALL_MAX = 32 * 1024, 64 * 1024, 256 * 1024
"""Bytes that a brain takes of one description, of one schema, of all tools of a hand."""
TOOLS_MAX = 128
LISTED_MAX = 1024 * 1024
"""Bytes of a listing, as one process tells it the other."""
_DEPTH = 30
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_MAX}}}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""The Messages API refuses a request with another, and so all that the model was to do."""
_SHOWN = 100
"""Characters of a name that people are shown."""
_DIGEST = 8
_COMBINED = ("oneOf", "anyOf", "allOf")


@dataclass
class Listing:
    """The tools of one server."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    """Each `name`, `description`, `input_schema`."""
    names: dict[str, str] = field(default_factory=dict)
    """Name of a tool here → as the server calls it."""
    left_out: list[str] = field(default_factory=list)
    """Which are not among them, and why."""


def listing(said: Iterable[tuple[str, str, Any]]) -> Listing:
    """Of name, description and schema of each tool, in the server's order."""
    found = Listing()
    room = ALL_MAX
    seen: set[str] = set()
    for each in said:
        name, description, schema = each
        tool = {
            "name": told_name(name),
            "description": _described(description, name),
            "input_schema": schema,
        }
        why = "another has its name" if name in seen else _no_text(*each) or problem(tool)
        size = 0 if why else _size(tool)
        if not why and len(found.tools) == TOOLS_MAX:
            why = f"there are more than {TOOLS_MAX}"
        elif not why and size > room:
            why = f"all together have more than {ALL_MAX} bytes"
        seen.add(name)
        if why:
            found.left_out.append(f"{word(name, _SHOWN)}: {why}")
            continue
        room -= size
        found.tools.append(tool)
        found.names[str(tool["name"])] = name
    return found


def _no_text(name: str, description: str, schema: Any) -> str:
    if NO_TEXT in f"{name}{description}{json.dumps(schema, ensure_ascii=False)}":
        return "its name, its description or its schema holds what is no text"
    return ""


def told_name(name: str) -> str:
    """The name that a model is told for a server's."""
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_NOT_IN_NAMES.sub('_', name)[: NAME_MAX - _DIGEST - 1]}_{digest}"


def checked(data: bytes) -> list[Tool]:
    """The tools in a listing that came out of a sandbox. Raises ValueError."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("what it lists is no JSON") from None
    if not isinstance(said, list) or not 0 < len(said) <= TOOLS_MAX:
        raise ValueError(f"it lists no tools, or more than {TOOLS_MAX}")
    for tool in said:
        if not isinstance(tool, dict) or not _NAME.fullmatch(str(tool.get("name"))):
            raise ValueError("it lists a tool by a name that is none")
        if why := problem(tool):
            raise ValueError(f"tool {tool['name']}: {why}")
    if len({tool["name"] for tool in said}) < len(said):
        raise ValueError("it lists two tools of one name")
    if sum(map(_size, said)) > ALL_MAX:
        raise ValueError(f"its tools have more than {ALL_MAX} bytes")
    return [
        Tool(tool["name"], _described(tool["description"], tool["name"]), tool["input_schema"])
        for tool in said
    ]


def problem(tool: Mapping[str, Any]) -> str:
    """Why a model cannot be told of a tool; empty when it can."""
    description, schema = tool.get("description"), tool.get("input_schema")
    if not isinstance(description, str) or not 0 < len(description.encode()) <= DESCRIPTION_MAX:
        return f"its description is none, or has more than {DESCRIPTION_MAX} bytes"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its schema is not that of an object"
    if not isinstance(schema.get("properties", {}), dict):
        return "its schema's properties are none"
    if not all(map(_PROPERTY.fullmatch, schema.get("properties", {}))):
        return "a property of its schema has a name that no model could be told"
    if not all(isinstance(e, dict | bool) for e in schema.get("properties", {}).values()):
        return "its schema's properties are no schemas"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        return "what its schema requires is no list of names"
    if any(each in schema for each in _COMBINED):
        return "its schema has oneOf, anyOf or allOf at its top"
    if _deeper(schema, _DEPTH):
        return f"its schema is nested more than {_DEPTH} deep"
    if len(json.dumps(schema)) > SCHEMA_MAX:
        return f"its schema has more than {SCHEMA_MAX} bytes"
    return ""


def _described(description: str, name: str) -> str:
    """What a model is told, and people are shown, of a tool: never empty."""
    text = plain(description).strip() or f"The server says nothing of {word(name, _SHOWN)}."
    return text.encode("utf-8", "replace")[:DESCRIPTION_MAX].decode("utf-8", "ignore")


def _size(tool: Mapping[str, Any]) -> int:
    return len(tool["description"].encode()) + len(json.dumps(tool["input_schema"]))


def _deeper(value: Any, most: int) -> bool:
    if most < 0:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_deeper(each, most - 1) for each in inner)
