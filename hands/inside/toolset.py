"""The tools of a hand with a shell and files: names, descriptions, schemas. Pure data and a check.

Names and schemas are those Claude knows as `agent_toolset_20260401`. `Describe`
says them, and nothing runs whose input does not fit them.
"""

from collections.abc import Mapping

from hands.inside.schema import Json, Problem, Schema

DEFAULT_TIME_LIMIT = 120.0
"""Seconds a call may take when nobody says otherwise."""

FILE_LIMIT = 256 * 1024
"""Bytes of a file that `read` gives back and `edit` edits."""

_DAY_MS = 24 * 60 * 60 * 1000  # what takes longer is a background job
_PATH: Json = {"type": "string", "minLength": 1}


def _object(required: list[Json], **properties: Json) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


TOOLS: dict[str, tuple[str, Schema]] = {
    "bash": (
        "Run a command with bash. The working directory and exported variables carry over to the "
        "next call; nothing else of the shell does. There is no terminal and standard input is "
        "empty. Standard error is merged into the output, of which the first and last 64 KiB are "
        "kept. A command that takes longer than timeout_ms (default 120000) is killed with all it "
        "started; start a server in the background with '&'. restart=true, without a command, "
        "kills what runs in the background and starts over in the workspace.",
        _object(
            [],
            command={"type": "string", "minLength": 1},
            restart={"type": "boolean"},
            timeout_ms={"type": "integer", "minimum": 0, "maximum": _DAY_MS},
        ),
    ),
    "read": (
        "Read a text file of the workspace, up to 256 KiB. view_range=[first, last] gives those "
        "lines, counted from 1; last=-1 means to the end.",
        _object(
            ["file_path"],
            file_path=_PATH,
            view_range={
                "type": "array",
                "items": {"type": "integer"},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
    ),
    "write": (
        "Write a file of the workspace, replacing what it held; missing folders are made.",
        _object(["file_path", "content"], file_path=_PATH, content={"type": "string"}),
    ),
    "edit": (
        "Replace old_string, which must occur exactly once in the file, by new_string; with "
        "replace_all=true, every occurrence.",
        _object(
            ["file_path", "old_string", "new_string"],
            file_path=_PATH,
            old_string={"type": "string", "minLength": 1},
            new_string={"type": "string"},
            replace_all={"type": "boolean"},
        ),
    ),
    "glob": (
        "List the workspace's files that match a pattern such as '**/*.py' or 'src/*.{c,h}', "
        "newest first, at most 200.",
        _object(["pattern"], pattern=_PATH, path=_PATH),
    ),
    "grep": (
        "Search the workspace's text files for a Python regular expression; answers "
        "'path:line:text', at most 100 KiB.",
        _object(["pattern"], pattern=_PATH, path=_PATH),
    ),
}
"""Tool name → what it does, and the schema of its input."""


def check_more(name: str, value: Mapping[str, object]) -> Problem | None:
    """What is wrong with an input that fits its schema, beyond what a schema says; or None."""
    if name == "bash" and "command" not in value and value.get("restart") is not True:
        return Problem("command", "is required, unless restart is true")
    if name == "bash" and "command" in value and value.get("restart") is True:
        return Problem("restart", "stands alone: make two calls, restart first")
    for field in ("command", "file_path", "path"):
        if "\0" in str(value.get(field, "")):
            return Problem(field, "must not hold a NUL character")
    return None
