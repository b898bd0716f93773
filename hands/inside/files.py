"""read, write and edit: one file of the workspace at a time."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hands.inside.beneath import ToolError, Workspace, explain
from hands.inside.output import counted
from hands.inside.toolset import FILE_LIMIT

JSON_LIMIT = 768 * 1024
"""Bytes of JSON a file may become on its way to the log, whose events hold 1 MiB."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def read(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """The file's text, or the lines asked for."""
    return content(workspace, given["file_path"], given.get("view_range")) or "[empty file]"


def content(workspace: Workspace, path: str, view_range: Sequence[int] | None) -> str:
    """The text of a file, whole if it is not too large, or of the lines `[first, last]`."""
    handle = workspace.file(path, os.O_RDONLY)
    with os.fdopen(handle, "rb") as file:
        try:
            if view_range is not None:
                first, last = view_range
                data = b"".join(_lines(file, path, first, last))
            else:
                size = os.fstat(handle).st_size
                if size > FILE_LIMIT:
                    raise ToolError(
                        f"{path} has {size} bytes, more than the {FILE_LIMIT} that one read gives; "
                        "pass view_range, for example [1, 500]"
                    )
                data = file.read(FILE_LIMIT)
        except OSError as error:
            raise explain(path, error) from None
    return _text(path, data)


def write(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """Write it; says how much and whether the file is new."""
    path: str = given["file_path"]
    data = given["content"].encode()
    handle, made = workspace.file_to_write(path)
    _replace(path, handle, data)
    return f"{'made' if made else 'replaced'} {path}: {counted(len(data), 'byte')}"


def edit(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """Replace text that must be there; says how often it was."""
    path: str = given["file_path"]
    old: str = given["old_string"]
    new: str = given["new_string"]
    times = 0

    def replaced(text: str) -> str:
        nonlocal times
        times = text.count(old)
        if times == 0:
            raise ToolError(f"old_string is not in {path}; read the file and copy it exactly")
        if times > 1 and not given.get("replace_all"):
            raise ToolError(
                f"old_string occurs {times} times in {path}; give more of the text around it, "
                "or replace_all=true"
            )
        return text.replace(old, new)

    change(workspace, path, replaced)
    return f"edited {path}: {counted(times, 'replacement')}"


def change(workspace: Workspace, path: str, edit: Callable[[str], str]) -> str:
    """Write over a text file what `edit` makes of its text, and give that; a ToolError leaves it.

    What the file had stays also when there is no room for all of the new text.
    """
    handle = workspace.file(path, os.O_RDWR)
    try:
        size = os.fstat(handle).st_size
        if size > FILE_LIMIT:
            limit = f"more than the {FILE_LIMIT} that edit takes; use bash, for example sed"
            raise ToolError(f"{path} has {size} bytes, {limit}")
        edited = edit(_text(path, os.pread(handle, FILE_LIMIT, 0)))
    except OSError as error:
        os.close(handle)
        raise explain(path, error) from None
    except ToolError:
        os.close(handle)
        raise
    _replace(path, handle, edited.encode())
    return edited


def _lines(file: Any, path: str, first: int, last: int) -> Iterator[bytes]:
    if first < 1 or (last != -1 and last < first):
        raise ToolError(
            "view_range must be [first, last] with 1 <= first <= last, or last -1 for the end"
        )
    size = number = 0
    # Bounded, so that a file that is one endless line does not fill the memory.
    while line := file.readline(FILE_LIMIT + 1):
        number += 1
        if number < first:
            # The rest of a line longer than the bound is the same line.
            while line and not line.endswith(b"\n"):
                line = file.readline(FILE_LIMIT + 1)
            continue
        size += len(line)
        if size > FILE_LIMIT:
            raise ToolError(
                f"lines {first} to {number} of {path} have more than {FILE_LIMIT} bytes; "
                "ask for fewer, or use bash for a part of a line"
            )
        yield line
        if number == last:
            return
    if number < first:
        raise ToolError(f"{path} has only {counted(number, 'line')}")


def _text(path: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(json.dumps(text, ensure_ascii=False)) > JSON_LIMIT:
        raise ToolError(f"{path} is not UTF-8 text; look at it with bash, for example xxd or file")
    return text


def _replace(path: str, handle: int, data: bytes) -> None:
    """Write over a file in place, which keeps its mode, owner and links.

    What it had stays when there is no room for all of `data`.
    """
    try:
        with os.fdopen(handle, "wb") as file:
            _make_room(handle, len(data))
            file.write(data)
            file.truncate()
    except OSError as error:
        raise explain(path, error) from None


def _make_room(handle: int, size: int) -> None:
    before = os.fstat(handle).st_size
    if size <= before:
        return
    try:
        os.posix_fallocate(handle, before, size - before)
    except OSError as error:
        os.ftruncate(handle, before)
        if error.errno in _NO_ROOM:
            raise  # others: this file system does not know how to, and the write will tell
