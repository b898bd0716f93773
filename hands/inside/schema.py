"""Checking a tool's input against its schema: the part of JSON Schema that our tools use.

What another's schema says in other words is passed over: whoever runs the tool knows them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Schema = Mapping[str, Json]


class Problem(NamedTuple):
    """What does not fit, and where: `view_range[1]`; the whole input is `input`."""

    field: str
    text: str


_TYPES: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "object": ("an object", dict),
    "array": ("a list", list),
    "string": ("a string", str),
    "integer": ("a whole number", int),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", bool),
}


def check(schema: Schema, value: object, field: str = "") -> Problem | None:
    """The first thing in `value` that does not fit `schema`, or None."""
    where = field or "input"
    if "$ref" in schema:  # what stands beside it may count, or not
        return None
    expected = schema.get("type")
    if isinstance(expected, str) and expected in _TYPES:
        words, kind = _TYPES[expected]
        # In Python true is a number too; in JSON it is not.
        if not isinstance(value, kind) or (isinstance(value, bool) and expected != "boolean"):
            return Problem(where, f"must be {words}")
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return Problem(where, f"must be one of {', '.join(map(str, choices))}")
    if isinstance(value, dict):
        return _check_object(schema, value, field)
    if isinstance(value, list):
        return _check_list(schema, value, where)
    if isinstance(value, str):
        return _check_text(schema, value, where)
    if isinstance(value, (int, float)):
        if value < _bound(schema, "minimum", float("-inf")):
            return Problem(where, f"must be at least {schema['minimum']}")
        if value > _bound(schema, "maximum", float("inf")):
            return Problem(where, f"must be at most {schema['maximum']}")
    return None


def _check_object(schema: Schema, value: dict[str, object], field: str) -> Problem | None:
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    more = None if "patternProperties" in schema else schema.get("additionalProperties")
    for name in required if isinstance(required, list) else ():
        if name not in value:
            return Problem(_join(field, str(name)), "is required")
    for name, inner in value.items():
        part = known.get(name, more)
        if isinstance(part, Mapping):
            if problem := check(part, inner, _join(field, name)):
                return problem
        elif part is False:
            there = f"known are {', '.join(known)}" if known else "there is none"
            return Problem(_join(field, name), f"is not known; {there}")
    return None


def _check_text(schema: Schema, value: str, where: str) -> Problem | None:
    if len(value) < _bound(schema, "minLength", 0):
        least = schema["minLength"]
        return Problem(where, "must not be empty" if least == 1 else f"is shorter than {least}")
    try:
        value.encode()  # to look at each letter would hold up all else for a long text
    except UnicodeEncodeError:
        return Problem(where, "holds half of a surrogate pair")
    return None


def _check_list(schema: Schema, value: list[object], where: str) -> Problem | None:
    least, most = _bound(schema, "minItems", 0), _bound(schema, "maxItems", float("inf"))
    if not least <= len(value) <= most:
        exact = f"exactly {least:g}" if least == most else f"{least:g} to {most:g}"
        return Problem(where, f"must hold {exact} values")
    items = None if "prefixItems" in schema else schema.get("items")
    if isinstance(items, Mapping):
        for index, inner in enumerate(value):
            if problem := check(items, inner, f"{where}[{index}]"):
                return problem
    return None


def _bound(schema: Schema, name: str, otherwise: float) -> float:
    value = schema.get(name)
    return value if isinstance(value, (int, float)) else otherwise


def _join(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name
