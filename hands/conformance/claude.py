"""The tools that Claude knows by name, and the fields of their inputs. Pure data.

A tool of one of these names must take exactly these: the model was taught them.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Fields(NamedTuple):
    """A tool's input: field → JSON type; and those that must be there."""

    types: Mapping[str, str]
    required: frozenset[str]


def _tool(text: str) -> Fields:
    """Of `command:string? timeout_ms:integer?`; `?` for what may be left out."""
    pairs = [one.split(":") for one in text.split()]
    types = {name: kind.removesuffix("?") for name, kind in pairs}
    return Fields(types, frozenset(name for name, kind in pairs if not kind.endswith("?")))


_PATH = "file_path:string"

KNOWN: Mapping[str, Fields] = {
    "bash": _tool("command:string? restart:boolean? timeout_ms:integer?"),
    "read": _tool(f"{_PATH} view_range:array?"),
    "write": _tool(f"{_PATH} content:string"),
    "edit": _tool(f"{_PATH} old_string:string new_string:string replace_all:boolean?"),
    "glob": _tool("pattern:string path:string?"),
    "grep": _tool("pattern:string path:string?"),
    "str_replace_based_edit_tool": _tool(
        "command:string path:string? view_range:array? file_text:string? old_str:string?"
        " new_str:string? insert_line:integer? insert_text:string?"
    ),
    "memory": _tool(
        "command:string path:string? view_range:array? file_text:string? old_str:string?"
        " new_str:string? insert_line:integer? insert_text:string? old_path:string?"
        " new_path:string?"
    ),
}

OF_CAPABILITY: Mapping[str, frozenset[str]] = {
    "shell": frozenset({"bash"}),
    "files": frozenset({"read", "write", "edit", "glob", "grep"}),
    "visual": frozenset({"screenshot"}),
}
"""What a type that claims a capability has."""
