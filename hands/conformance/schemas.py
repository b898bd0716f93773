"""The part of JSON Schema that a daemon understands, which holds each call to it. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

KINDS = ("array", "boolean", "integer", "number", "object", "string")
_BYTES_MAX = 64 * 1024
_DEPTH = 30


def problem(schema: Mapping[str, Any]) -> str:
    """What a daemon does not take of it, in words; empty when it takes it."""
    if len(json.dumps(schema)) > _BYTES_MAX:
        return f"it has more than {_BYTES_MAX} bytes"
    return next(_problems(schema, "", 0), "")


def _problems(part: Any, where: str, depth: int) -> Iterator[str]:
    name = where or "it"
    if depth > _DEPTH:
        yield f"{name} is nested deeper than {_DEPTH}"
        return
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        yield f"the type of {name} is {kind!r}, and not one of {', '.join(KINDS)}"
        return
    properties, required = part.get("properties", {}), part.get("required", [])
    if not isinstance(properties, Mapping):
        yield f"the properties of {name} are no object"
        return
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        yield f"what {name} requires is no list of names"
    if not isinstance(part.get("enum", []), list):
        yield f"the enum of {name} is no list"
    for field, inner in properties.items():
        yield from _problems(inner, f"{where}.{field}".lstrip("."), depth + 1)
    if "items" in part:
        yield from _problems(part["items"], f"items of {name}", depth + 1)
    if isinstance(more := part.get("additionalProperties"), Mapping):
        yield from _problems(more, f"additionalProperties of {name}", depth + 1)
