"""What the checks say that a daemon takes of a schema, it takes, and no more."""

import json
from typing import Any

import pytest

from carpal.verdict import Failed
from hands.builtin import socket_said
from hands.conformance import schemas
from hands.conformance.checks.described import check_taken
from tests.hands.hand_server import Least

_DEEP: dict[str, Any] = {"type": "string"}
for _ in range(40):
    _DEEP = {"type": "array", "items": _DEEP}
TEXT = {"type": "string"}
PARTS: list[tuple[dict[str, Any], bool]] = [
    (TEXT, True),
    ({"type": "array", "items": TEXT}, True),
    ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT}, True),
    ({"type": "object", "additionalProperties": False}, True),
    ({"type": ["string", "null"]}, False),
    ({"type": "null"}, False),
    ({}, False),
    ({"type": "array", "items": {}}, False),
    ({"type": "array", "items": []}, False),
    ({"type": "object", "properties": []}, False),
    ({"type": "object", "required": "a"}, False),
    ({"type": "object", "additionalProperties": {"type": 7}}, False),
    ({"type": "string", "enum": "a"}, False),
    ({"type": "string", "description": "x" * 70_000}, False),
    (_DEEP, False),
]


@pytest.mark.parametrize(("part", "taken"), PARTS)
def test_a_schema_is_taken_by_the_checks_if_it_is_by_a_daemon(
    part: dict[str, Any], taken: bool
) -> None:
    schema = {"type": "object", "properties": {"text": part}}
    info = Least().info
    info.tools[0].input_schema = json.dumps(schema).encode()
    assert bool(schemas.problem(schema)) != taken
    if taken:
        socket_said.described("echo", [info])
    else:
        with pytest.raises(ValueError):  # noqa: PT011 - any: what is wrong is said in words
            socket_said.described("echo", [info])


@pytest.mark.parametrize(("tools", "taken"), [(4, True), (6, False)])
def test_a_type_is_taken_whole_by_the_checks_if_it_is_by_a_daemon(tools: int, taken: bool) -> None:
    info = Least().info
    (first,) = info.tools
    schema = {"type": "object", "properties": {"text": {**TEXT, "description": "x" * 60_000}}}
    first.input_schema = json.dumps(schema).encode()
    for number in range(1, tools):
        info.tools.add().CopyFrom(first)
        info.tools[number].name = f"{first.name}{number}"
    if taken:
        check_taken(info)
        socket_said.described("echo", [info])
    else:
        with pytest.raises(Failed, match="bytes of descriptions and schemas"):
            check_taken(info)
        with pytest.raises(ValueError, match="bytes of descriptions and schemas"):
            socket_said.described("echo", [info])
