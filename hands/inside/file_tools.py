"""The tools that are functions of the workspace and an input, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hands.inside import editor, files, find, memory, read_picture
from hands.inside.beneath import Workspace
from hands.inside.history import KEPT

FILE_TOOLS: dict[str, Callable[[Workspace, Mapping[str, Any]], str]] = {
    "read": files.read,
    "write": files.write,
    "edit": files.edit,
    "glob": find.glob,
    "grep": find.grep,
    "str_replace_based_edit_tool": editor.editor,
    "memory": memory.memory,
}


def run(tool: str, workspace: Workspace, folder: Path, given: Mapping[str, Any]) -> Any:
    """Its text; or an object with `text` and `attachments`, whose bytes are in the hand's `folder`.

    Raises ToolError.
    """
    if tool == "read":
        picture = read_picture.read(workspace, given, folder / KEPT)
        if picture is not None:
            return picture
    return FILE_TOOLS[tool](workspace, given)
