"""What a daemon says it offers, held to what a log, the model and other sessions can bear. Pure.

A type that is no good is not offered: who named it learns why, and nobody
else notices.
"""

import re
from functools import lru_cache
from typing import Any

from carpal.errors import CarpalError, invalid
from carpal.json_in import deeper, read_object
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

Json = dict[str, Any]

TYPES_MAX = 64
"""Of one daemon."""
TOOLS_MAX = 128
"""Of one type."""
DESCRIPTION_MAX = 32 * 1024
SCHEMA_MAX = 64 * 1024
"""Bytes, of one tool."""
SCHEMA_DEPTH = 32
TYPE_MAX = 256 * 1024
"""Bytes of all that is said of one type's tools: a session may name several, and a log holds them
in one group of events."""
ID_MAX = 256
"""Characters of an id, a version, a label's name or its value."""
LABELS_MAX = 64
_TOOL = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TYPE = re.compile(r"[a-zA-Z0-9._-]{1,64}")


def check_hello(hello: pb.Hello) -> None:
    """INVALID_FIELD for what no lease could say of the daemon."""
    for field in ("instance_id", "boot_id", "journal_id", "version"):
        if len(getattr(hello, field)) > ID_MAX:
            raise invalid(field, f"has more than {ID_MAX} characters")
    if len(hello.labels) > LABELS_MAX:
        raise invalid("labels", f"there are more than {LABELS_MAX}")
    if any(len(text) > ID_MAX for label in hello.labels.items() for text in label):
        raise invalid("labels", f"one has more than {ID_MAX} characters")


def keep_good(hello: pb.Hello) -> list[CarpalError]:
    """Take from a hello the types that are no good; why each was."""
    kept: list[hand_pb2.HandTypeInfo] = []
    why: list[CarpalError] = []
    for info in hello.types:
        try:
            tools_of(info)
            if len(kept) == TYPES_MAX:
                raise invalid("types", f"there are more than {TYPES_MAX}")
        except CarpalError as error:
            why.append(error)
        else:
            kept.append(info)
    if why:
        good = pb.Hello(types=kept)
        del hello.types[:]
        hello.types.MergeFrom(good.types)
    return why


def tools_of(info: hand_pb2.HandTypeInfo) -> list[Json]:
    """A type's tools as the log has them, not to be changed; INVALID_FIELD says what is wrong."""
    # Every drive asks for every hand it names, and all hands of a type have the same answer.
    return _tools_of(info.SerializeToString(deterministic=True))


def forbidden_of(info: hand_pb2.HandTypeInfo) -> list[str]:
    """Names of a type's tools that the machine's owner forbids; of what is none, nothing."""
    names = [name for name in info.forbidden_tools if _TOOL.fullmatch(name)]
    return sorted(set(names))[:TOOLS_MAX]


@lru_cache(maxsize=256)
def _tools_of(serialized: bytes) -> list[Json]:
    info = hand_pb2.HandTypeInfo.FromString(serialized)
    if not _TYPE.fullmatch(info.type):
        raise invalid("type", f"{info.type[:ID_MAX]!r} is no name of a type")
    where = f"type {info.type!r}"
    if len(info.tools) > TOOLS_MAX:
        raise invalid(where, f"there are more than {TOOLS_MAX} tools")
    size = sum(len(t.description.encode()) + len(t.input_schema) for t in info.tools)
    if size > TYPE_MAX:
        raise invalid(where, f"what is said of its tools has {size} bytes, more than {TYPE_MAX}")
    tools = [_tool(where, tool) for tool in info.tools]
    if len({tool["name"] for tool in tools}) < len(tools):
        raise invalid(where, "two tools have one name")
    return tools


def _tool(where: str, told: hand_pb2.ToolInfo) -> Json:
    named = f"{where}, tool {told.name[:ID_MAX]!r}"
    schema = read_object(told.input_schema, named, size=SCHEMA_MAX, depth=SCHEMA_DEPTH)
    tool = {"name": told.name, "description": told.description, "input_schema": schema}
    if problem := unfit(tool):
        raise invalid(named, problem)
    return tool


def unfit(tool: Any) -> str:
    """Why the model cannot be told of a tool, as a log has it; nothing when it can be."""
    if not isinstance(tool, dict):
        return "is no object"
    name, description = tool.get("name"), tool.get("description")
    if not isinstance(name, str) or not _TOOL.fullmatch(name):
        return "the name is not 1 to 128 of a-z, A-Z, 0-9, '_' and '-'"
    if not isinstance(description, str) or len(description.encode()) > DESCRIPTION_MAX:
        return f"the description has more than {DESCRIPTION_MAX} bytes"
    return _unfit_schema(tool.get("input_schema"))


def _unfit_schema(schema: Any) -> str:
    """What the Messages API refuses of an input schema, as far as a look at it tells."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "the schema's type is not object"
    if deeper(schema, SCHEMA_DEPTH):
        return f"the schema is nested more than {SCHEMA_DEPTH} deep"
    if schema.keys() & {"oneOf", "anyOf", "allOf"}:
        return "the schema has oneOf, anyOf or allOf at its top"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(
        isinstance(each, dict | bool) for each in properties.values()
    ):
        return "the schema's properties are no schemas"
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        return "what the schema requires is no list of names"
    return ""
