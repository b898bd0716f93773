"""Headers of a request to an MCP server, made from its body alone. Pure.

A server may ask that arguments of a tool are repeated in headers (`x-mcp-header` in the tool's
schema). It chooses their names, so those are held to what a name may be, and stand behind a prefix
that no header of ours has; values that could be anything but one line of ASCII go as base64.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

ANNOTATIONS_MAX = 16
VALUE_MAX = 4096
"""Bytes of one value."""
PREFIX = "Mcp-Param-"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_LINE = re.compile(r"[\x20-\x7e]*")
_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_KEY = "x-mcp-header"
_KINDS = ("string", "integer", "boolean")

Headers = list[tuple[str, str]]
Annotations = Mapping[tuple[str, ...], str]
"""Path of a property in the arguments → name of its header, without the prefix."""


class Unsendable(Exception):
    """A header cannot be what it would have to be."""


def of_message(method: str, params: Mapping[str, Any], version: str) -> Headers:
    """Those by which anybody on the way may read what a request of 2026-07-28 is."""
    found = [("MCP-Protocol-Version", version), ("Mcp-Method", method)]
    if (key := _NAMED.get(method)) is not None:
        found.append(("Mcp-Name", encoded(str(params.get(key, "")))))
    return found


def of_arguments(annotations: Annotations, arguments: Mapping[str, Any]) -> Headers:
    """Those that a tool's schema asks for, of arguments that are there."""
    found = []
    for path, name in annotations.items():
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, bool):
            found.append((PREFIX + name, "true" if value else "false"))
        elif isinstance(value, str | int):
            found.append((PREFIX + name, encoded(str(value))))
    return found


def annotations(schema: Any) -> dict[tuple[str, ...], str]:
    """What a tool's schema asks for. Raises Unsendable where it asks for what may not be."""
    found: dict[tuple[str, ...], str] = {}
    for path, each in _positions(schema):
        if _KEY not in each:
            continue
        name = each[_KEY]
        if not path or not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise Unsendable("a header's name is none, or stands where there is no argument")
        if each.get("type") not in _KINDS:
            raise Unsendable("a header's value is no text, number or truth")
        if name.lower() in map(str.lower, found.values()):
            raise Unsendable("two headers have one name")
        found[path] = name
        if len(found) > ANNOTATIONS_MAX:
            raise Unsendable(f"it asks for more than {ANNOTATIONS_MAX} headers")
    return found


def encoded(value: str) -> str:
    """A value as one line of visible ASCII. Raises Unsendable when it is too long."""
    plain = _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?="))
    if not plain:
        value = f"=?base64?{base64.b64encode(value.encode('utf-8')).decode('ascii')}?="
    if len(value) > VALUE_MAX:
        raise Unsendable("a header's value is too long")
    return value


def checked(headers: Headers) -> Headers:
    """The same, once more held to what may be sent: nothing in one may begin another."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or not _LINE.fullmatch(value):
            raise Unsendable("a header has what none may have")
    return headers


def trace(value: str | None) -> Headers:
    """The one header of a caller's that is passed on."""
    return [("traceparent", value)] if value and _TRACE.fullmatch(value) else []


def _positions(schema: Any) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every object in a schema, with its path where that is of properties alone; else ()."""
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, list):
            stack += [(None, each) for each in node]
        if not isinstance(node, dict):
            continue
        yield path or (), node
        for key, inner in node.items():
            if key == "properties" and isinstance(inner, dict):
                for name, below in inner.items():
                    stack.append(((*path, name) if path is not None else None, below))
            elif key not in ("default", "examples", "const", "enum"):
                stack.append((None, inner))
