"""The tools of a hand with a shell and files: names, descriptions, schemas. Pure data and a check.

Names and schemas are those Claude knows: `agent_toolset_20260401`, the text editor
`text_editor_20250728` and `memory_20250818`. `Describe` says them, and nothing runs
whose input does not fit them.
"""

from collections.abc import Mapping, Sequence

from hands.inside.schema import Json, Problem, Schema

FILE_LIMIT = 256 * 1024
"""Bytes of a file that `read` gives back and `edit` edits."""

_DAY_MS = 24 * 60 * 60 * 1000  # what takes longer is a background job
_PATH: Json = {"type": "string", "minLength": 1}
_TEXT: Json = {"type": "string"}
_LINES: Json = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}

_COMMANDS: dict[str, dict[str, tuple[Sequence[str], Sequence[str]]]] = {
    "str_replace_based_edit_tool": {
        "view": (["path"], ["view_range"]),
        "create": (["path", "file_text"], []),
        "str_replace": (["path", "old_str"], ["new_str"]),
        "insert": (["path", "insert_line", "insert_text"], []),
    },
    "memory": {
        "view": (["path"], ["view_range"]),
        "create": (["path", "file_text"], []),
        "str_replace": (["path", "old_str", "new_str"], []),
        "insert": (["path", "insert_line", "insert_text"], []),
        "delete": (["path"], []),
        "rename": (["old_path", "new_path"], []),
    },
}
"""Tool → its commands, each with the fields it must have and those it may."""
MEMORIES = "/memories"
"""How every path of `memory` begins."""


def _object(required: list[Json], **properties: Json) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _with_commands(tool: str, **properties: Json) -> Schema:
    command: Json = {"type": "string", "enum": list(_COMMANDS[tool])}
    return _object(["command"], command=command, **properties)


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
            view_range=_LINES,
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
    "str_replace_based_edit_tool": (
        "View, create and edit text files of the workspace, up to 256 KiB. view shows a file with "
        "its lines numbered from 1 (view_range=[first, last]; last=-1 means to the end), or what a "
        "folder holds, two levels deep. create writes file_text, replacing what the file held. "
        "str_replace replaces old_str, which must occur exactly once, by new_str, or removes it. "
        "insert puts insert_text, as lines of its own, after line insert_line; 0 means at the top.",
        _with_commands(
            "str_replace_based_edit_tool",
            path=_PATH,
            view_range=_LINES,
            file_text=_TEXT,
            old_str=_PATH,
            new_str=_TEXT,
            insert_line={"type": "integer", "minimum": 0},
            insert_text=_TEXT,
        ),
    ),
    "memory": (
        "Keep notes across conversations, in files whose paths begin with /memories. They are the "
        "folder 'memories' of the workspace, and are kept as long as that is. view shows a file "
        "with its lines numbered, or what a folder holds; create makes a new file; str_replace "
        "replaces old_str, which must occur exactly once; insert puts insert_text after line "
        "insert_line; delete removes a file or a folder with all in it; rename moves one to a path "
        "where nothing is.",
        _with_commands(
            "memory",
            path=_PATH,
            view_range=_LINES,
            file_text=_TEXT,
            old_str=_PATH,
            new_str=_TEXT,
            insert_line={"type": "integer", "minimum": 0},
            insert_text=_TEXT,
            old_path=_PATH,
            new_path=_PATH,
        ),
    ),
}
"""Tool name → what it does, and the schema of its input."""


def check_more(name: str, value: Mapping[str, object]) -> Problem | None:
    """What is wrong with an input that fits its schema, beyond what a schema says; or None."""
    if name == "bash" and "command" not in value and value.get("restart") is not True:
        return Problem("command", "is required, unless restart is true")
    if name == "bash" and "command" in value and value.get("restart") is True:
        return Problem("restart", "stands alone: make two calls, restart first")
    for field in ("command", "file_path", "path", "old_path", "new_path"):
        if "\0" in str(value.get(field, "")):
            return Problem(field, "must not hold a NUL character")
    if name in _COMMANDS:
        return _check_command(name, value)
    return None


def _check_command(name: str, value: Mapping[str, object]) -> Problem | None:
    """The command has the fields it needs, and none that it would not look at."""
    command = str(value["command"])
    needed, optional = _COMMANDS[name][command]
    for field in needed:
        if field not in value:
            return Problem(field, f"is required by command {command}")
    fields = [*needed, *optional]
    for field in value:
        if field != "command" and field not in fields:
            return Problem(field, f"is nothing to command {command}; it takes {', '.join(fields)}")
    for field in ("path", "old_path", "new_path"):
        path = f"{value.get(field, MEMORIES)}/"
        if name == "memory" and not path.startswith(f"{MEMORIES}/"):
            return Problem(field, f"must be {MEMORIES} or begin with {MEMORIES}/")
    return None
