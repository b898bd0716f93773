"""str_replace_based_edit_tool: Claude's text editor, on the files of the workspace.

`memory` is the same on a folder of its own, so what both do is here.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hands.inside.beneath import ToolError, Workspace, explain
from hands.inside.files import JSON_LIMIT, change, content, write
from hands.inside.output import counted

_SHOWN = 1000
"""Entries of a folder that `view` gives."""
_DEEP = 2
_AROUND = 3
"""Lines shown before and after a change."""
_SNIPPET = 16 * 1024
"""Characters of those lines; more are not shown."""
_PLACES = 20
"""Lines named when a text occurs more than once."""


def editor(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """Do the command; the input fits it."""
    match given["command"]:
        case "view":
            return view(workspace, given, hidden=("node_modules",))
        case "create":
            return write(workspace, {"file_path": given["path"], "content": given["file_text"]})
        case "str_replace":
            return str_replace(workspace, given)
        case "insert":
            return insert(workspace, given)
    raise ToolError(f"command {given['command']} is not known")


def view(workspace: Workspace, given: Mapping[str, Any], hidden: tuple[str, ...] = ()) -> str:
    """A file with its lines numbered; of a folder what is in it, but what is `hidden`."""
    path: str = given["path"]
    handle = workspace.existing(path)
    is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
    os.close(handle)
    if is_folder:
        if "view_range" in given:
            raise ToolError(f"{path} is a folder: view it without view_range")
        return _listed(workspace, path, hidden)
    lines = given.get("view_range")
    text = content(workspace, path, lines)
    shown = _numbered(text, lines[0] if lines else 1)
    if len(json.dumps(shown, ensure_ascii=False)) > JSON_LIMIT:
        many = counted(text.count("\n"), "line")
        raise ToolError(f"{path} has {many} to number; pass view_range, for example [1, 500]")
    return shown or "[empty file]"


def str_replace(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """Replace a text that must be there once; shows the lines around."""
    path: str = given["path"]
    old: str = given["old_str"]
    new: str = given.get("new_str", "")
    at = 0

    def replaced(text: str) -> str:
        nonlocal at
        places = list(_places(text, old))
        if not places:
            crlf = old.replace("\n", "\r\n")
            why = "; its lines end in CRLF" if crlf != old and crlf in text else ""
            raise ToolError(f"old_str is not in {path}{why}; view the file and copy it exactly")
        if len(places) > 1:
            lines = [str(text.count("\n", 0, place) + 1) for place in places[:_PLACES]]
            more = ", …" if len(places) > _PLACES else ""
            raise ToolError(
                f"old_str occurs {len(places)} times in {path}, on lines {', '.join(lines)}{more}; "
                "give more of the text around it"
            )
        at = text.count("\n", 0, places[0])
        return text.replace(old, new)

    edited = change(workspace, path, replaced)
    return _edited(path, edited, at, new)


def insert(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """Put text between lines, as lines of its own; shows the lines around."""
    path: str = given["path"]
    line: int = given["insert_line"]
    added: str = given["insert_text"]
    if not added.endswith("\n"):
        added += "\n"

    def inserted(text: str) -> str:
        if text and not text.endswith("\n") and line == len(_split(text)):
            text += "\n"
        lines = _split(text)
        if line > len(lines):
            has = counted(len(lines), "line")
            raise ToolError(f"insert_line must be 0 to {len(lines)}: {path} has {has}")
        return "".join([*lines[:line], added, *lines[line:]])

    edited = change(workspace, path, inserted)
    return _edited(path, edited, line, added[:-1])


def _places(text: str, old: str) -> Iterator[int]:
    """Where `old` begins, overlapping ones too: each of them could be meant."""
    place = text.find(old)
    while place >= 0:
        yield place
        place = text.find(old, place + 1)


def _split(text: str) -> list[str]:
    """Lines with their ends; LF alone ends one, as every other tool counts."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _numbered(text: str, first: int) -> str:
    return "\n".join(f"{n:6}\t{line.rstrip(chr(10))}" for n, line in enumerate(_split(text), first))


def _edited(path: str, text: str, first: int, added: str) -> str:
    """What to say of an edit: the lines of `added`, the first counted from 0, and some around."""
    lines = _split(text)
    begin, end = max(0, first - _AROUND), first + added.count("\n") + 1 + _AROUND
    shown = _numbered("".join(lines[begin:end]), begin + 1)
    if not shown or len(shown) > _SNIPPET:
        return f"edited {path}, which has {counted(len(lines), 'line')} now"
    return f"edited {path}, which now reads:\n{shown}"


def _listed(workspace: Workspace, path: str, hidden: tuple[str, ...]) -> str:
    except_these = "hidden ones" if not hidden else f"hidden ones and {', '.join(hidden)}"
    lines: list[str] = []
    handle = workspace.folder(path)
    try:
        for size, name in _below(handle, Path(path), hidden, _DEEP):
            if len(lines) == _SHOWN:
                lines.append(f"[more than {_SHOWN} entries; view a folder below]")
                break
            lines.append(f"{size}\t{name}")
    except OSError as error:
        raise explain(path, error) from None
    finally:
        os.close(handle)
    head = f"{path}, {_DEEP} levels deep, without {except_these}; bytes and name:"
    return "\n".join([head, *(lines or ["[nothing]"])])


def _below(
    folder: int, path: Path, hidden: tuple[str, ...], levels: int
) -> Iterator[tuple[str, str]]:
    """Bytes and path of what is in a folder, by name; folders end in /, no symlink is followed."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.name[0] != "." and e.name not in hidden)
    for name in names:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile
        if not stat.S_ISDIR(found.st_mode):
            yield str(found.st_size), str(path / name)
            continue
        yield "-", f"{path / name}/"
        if levels > 1:
            try:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(name, flags, dir_fd=folder)
            except OSError:
                continue  # gone, or not ours to look into
            try:
                yield from _below(inner, path / name, hidden, levels - 1)
            finally:
                os.close(inner)
