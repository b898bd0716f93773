"""A file or a folder between two machines, as a tar of which it is the only member at the top.

The same at both ends. Who receives believes nothing: what comes is unpacked
beside its place, by `unpack`, which lets nothing lead out, and is put there in
one step at its end. So what was cut leaves nothing, and what is there is whole.
"""

import errno
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from hands.inside import pack, unpack
from hands.inside.beneath import ToolError, Workspace, explain
from hands.inside.removal import remove_tree
from hands.inside.wire import Passing

TOP = "it"
"""What it is called in the tar; who receives knows its name."""
_BAD_NAMES = {"", ".", ".."}


def serve(workspace: Path, options: Mapping[str, Any], passing: Passing) -> dict[str, Any]:
    """The hand's end: what was done, or what went wrong."""
    try:
        inside = Workspace(workspace)
        if "from" in options:
            return {"said": give(inside, str(options["from"]), passing)}
        return {"said": take(inside, str(options["to"]), str(options["name"]), passing)}
    except ToolError as error:
        return {"problem": str(error)}


def give(workspace: Workspace, path: str, sink: pack.Sink) -> str:
    """Send what is at a path; says how much it was. Raises ToolError."""
    handle = workspace.existing(path)
    try:
        mode = os.fstat(handle).st_mode
    finally:
        os.close(handle)
    if stat.S_ISDIR(mode):
        folder = workspace.folder(path)
        try:
            return pack.pack_folder(Workspace(workspace.root / path, folder), TOP, sink)
        finally:
            os.close(folder)
    handle = workspace.file(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return pack.pack_file(handle, TOP, sink)
    finally:
        os.close(handle)


def take(workspace: Workspace, path: str, name: str, source: unpack.Source) -> str:
    """Put what comes at a path, or as `name` into the folder there; says where it is.

    A file takes the place of a file; a folder of nothing. Raises ToolError.
    """
    relative = workspace.relative(path)
    if _is_folder(workspace, relative):
        parent, last = relative, name
    else:
        pure = PurePosixPath(relative)
        parent, last = str(pure.parent), pure.name
        if path.endswith("/"):
            parent, last = relative, name
    if last in _BAD_NAMES or "/" in last or "\0" in last:
        raise ToolError(f"{last!r} is no name of a file")
    aside = f".carpal-copy-{secrets.token_hex(6)}"
    unpack.folders(workspace, parent)
    above = unpack.parent_of(workspace, parent)
    try:
        said = unpack.archive(workspace, str(PurePosixPath(parent, aside)), source, TOP)
        _put(above, aside, last)
    finally:
        with suppress(OSError):
            remove_tree(aside, dir_fd=above)
        os.close(above)
    return f"{PurePosixPath(parent, last)}: {said.partition(': ')[2]}"


def _put(above: int, aside: str, last: str) -> None:
    """From beside its place into it."""
    folder = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        if os.listdir(folder) != [TOP]:  # noqa: PTH208 - an open folder
            raise ToolError("what came is not one file or one folder")
        if stat.S_ISLNK(os.lstat(TOP, dir_fd=folder).st_mode):
            raise ToolError("what came is a symlink")
        os.rename(TOP, last, src_dir_fd=folder, dst_dir_fd=above)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}:
            raise ToolError(f"{last} is there already, and is kept: copy to another name") from None
        raise explain(last, error) from None
    finally:
        os.close(folder)


def _is_folder(workspace: Workspace, path: str) -> bool:
    try:
        handle = workspace.plain(path or ".", os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False
    os.close(handle)
    return True
