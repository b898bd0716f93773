"""memory: notes that Claude keeps for itself, below /memories.

That is the folder `memories` of the workspace, so they are saved, restored and
mounted with it, and the shell finds them there. No path leads out of it.
"""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hands.inside import editor
from hands.inside.beneath import ToolError, Workspace, explain
from hands.inside.files import write
from hands.inside.removal import remove_tree
from hands.inside.toolset import MEMORIES

_FOLDER = MEMORIES.lstrip("/")


def memory(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """Do the command; the input fits it."""
    memories = workspace.within(_FOLDER, Path(MEMORIES))
    match given["command"]:
        case "view":
            return editor.view(memories, given)
        case "create":
            return _create(memories, given["path"], given["file_text"])
        case "str_replace":
            return editor.str_replace(memories, given)
        case "insert":
            return editor.insert(memories, given)
        case "delete":
            return _delete(memories, given["path"])
        case "rename":
            return _rename(memories, given["old_path"], given["new_path"])
    raise ToolError(f"command {given['command']} is not known")


def _create(memories: Workspace, path: str, text: str) -> str:
    folder, name = _existing_parent(memories, path)
    try:
        if _there(folder, name):
            raise ToolError(f"{path} is there already; change it with str_replace or insert")
    finally:
        os.close(folder)
    return write(memories, {"file_path": path, "content": text})


def _delete(memories: Workspace, path: str) -> str:
    """Remove a file, or a folder with all in it; of a symlink the link."""
    if memories.relative(path) in ("", "."):
        raise ToolError(f"{MEMORIES} itself cannot be deleted; delete what is in it")
    folder, name = memories.parent(path)
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            remove_tree(name, folder)
        else:
            os.unlink(name, dir_fd=folder)
    except OSError as error:
        raise explain(path, error) from None
    finally:
        os.close(folder)
    return f"deleted {path}"


def _rename(memories: Workspace, old: str, new: str) -> str:
    """Move a file or a folder to where nothing is; missing folders are made."""
    source, old_name = memories.parent(old)
    try:
        if not _there(source, old_name):
            raise explain(old, FileNotFoundError(errno.ENOENT, "")) from None
        target, new_name = _existing_parent(memories, new)
        try:
            if _there(target, new_name):
                raise ToolError(f"{new} is there already; delete it first, or choose another path")
            os.rename(old_name, new_name, src_dir_fd=source, dst_dir_fd=target)
        finally:
            os.close(target)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ToolError(f"{old} cannot be moved into itself") from None
        raise explain(old, error) from None
    finally:
        os.close(source)
    return f"renamed {old} to {new}"


def _existing_parent(memories: Workspace, path: str) -> tuple[int, str]:
    """The folder that `path` is to be in, made if need be, and its name there."""
    memories.make_parent(path)
    return memories.parent(path)


def _there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
