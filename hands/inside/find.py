"""glob and grep: a bounded walk of the workspace that follows no symlink."""

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from fnmatch import translate
from pathlib import Path
from typing import Any

from hands.inside.beneath import ToolError, Workspace, explain
from hands.inside.output import counted

_GLOB_RESULTS = 200
_WALK_ENTRIES = 50_000
_WALK_LEVELS = 100
"""Folders in folders that are looked into: each is held open on the way."""
_GREP_BYTES = 100 * 1024
_LINE_BYTES = 2000
"""Longer lines are skipped: a backtracking pattern on them takes for ever."""
_SKIPPED = {".git"}


def glob(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """Paths from the workspace on, newest first."""
    pattern: str = given["pattern"]
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError("pattern must be relative and without '..'; pass path for another folder")
    wanted = [_compile(one) for one in _braces(pattern)]
    walk = _Walk(workspace, given.get("path", "."))
    found: list[tuple[float, str]] = []
    for folder, inner, name, handle in walk:
        if any(_fits(one, inner.split("/")) for one in wanted):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                time = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mtime
                found.append((time, str(folder / name)))
    found.sort(key=lambda item: (-item[0], item[1]))
    lines = [path for _, path in found[:_GLOB_RESULTS]]
    if len(found) > _GLOB_RESULTS:
        lines.append(f"[{len(found) - _GLOB_RESULTS} more not shown; narrow the pattern]")
    return "\n".join([*lines, *walk.notes()]) or "[no file matches]"


def grep(workspace: Workspace, given: Mapping[str, Any]) -> str:
    """`path:line:text` for each line that matches."""
    try:
        wanted = re.compile(given["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"pattern is not a Python regular expression: {error}") from None
    walk = _Walk(workspace, given.get("path", "."))
    hits: list[str] = []
    size = 0
    for folder, _, name, handle in walk:
        path = folder / name
        for number, text in _matches(wanted, name, handle):
            hit = f"{path}:{number}:{text}"
            size += len(hit.encode("utf-8", "replace")) + 1
            if size > _GREP_BYTES:
                return "\n".join([*hits, f"[cut at {_GREP_BYTES} bytes; narrow the search]"])
            hits.append(hit)
    return "\n".join([*hits, *walk.notes()]) or "[no line matches]"


class _Walk:
    """Regular files below a path: folder from the workspace on, path below the start, name, fd."""

    def __init__(self, workspace: Workspace, path: str) -> None:
        self._workspace = workspace
        self._path = path
        self._seen = 0
        self._too_deep = False
        self._start = Path(workspace.relative(path))

    def __iter__(self) -> Iterator[tuple[Path, str, str, int]]:
        handle = self._workspace.existing(self._path)
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        os.close(handle)
        if is_file:
            parent = self._workspace.folder(str(self._start.parent))
            name = self._start.name
            try:
                yield self._start.parent, name, name, parent
            finally:
                os.close(parent)
            return
        top = self._workspace.folder(self._path)
        try:
            yield from self._below(top)
        except OSError as error:
            raise explain(self._path, error) from None
        finally:
            os.close(top)

    def _below(self, top: int) -> Iterator[tuple[Path, str, str, int]]:
        for folder, folders, names, handle in os.fwalk(".", dir_fd=top):
            folders[:] = sorted(set(folders) - _SKIPPED)
            inside = Path(folder)
            if folders and len(inside.parts) >= _WALK_LEVELS:
                self._too_deep = True
                folders.clear()
            for name in sorted(names):
                self._seen += 1
                if self._seen > _WALK_ENTRIES:
                    return
                if _is_regular(name, handle):
                    yield self._start / inside, str(inside / name), name, handle

    def notes(self) -> list[str]:
        """What the walk left out."""
        notes = []
        if self._too_deep:
            notes.append(f"[not looked into folders more than {_WALK_LEVELS} deep; pass path]")
        if self._seen > _WALK_ENTRIES:
            notes.append(f"[stopped after {counted(_WALK_ENTRIES, 'file')}; pass path]")
        return notes


def _is_regular(name: str, handle: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)
    except OSError:
        return False  # gone meanwhile


def _matches(wanted: re.Pattern[str], name: str, handle: int) -> Iterator[tuple[int, str]]:
    try:
        # Not to block, should it have become a FIFO meanwhile.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, dir_fd=handle), "rb") as file:
            if b"\0" in file.read(8192):
                return  # binary
            file.seek(0)
            number, begins = 0, True
            while line := file.readline(_LINE_BYTES + 1):
                number += begins
                whole = begins and len(line) <= _LINE_BYTES
                begins = line.endswith(b"\n")
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if whole and wanted.search(text):
                    yield number, text
    except OSError:
        return  # unreadable: as grep -s


def _braces(pattern: str) -> list[str]:
    """`*.{c,h}` → `*.c`, `*.h`; the innermost first, and at most 64 of them."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    patterns = [
        inner for one in found.group(1).split(",") for inner in _braces(f"{before}{one}{after}")
    ]
    if len(patterns) > 64:
        raise ToolError("pattern has too many alternatives in braces")
    return patterns


_Pattern = list[re.Pattern[str] | None]
"""One entry a name of the path; None is any number of folders."""


def _compile(pattern: str) -> _Pattern:
    parts: _Pattern = []
    for part in pattern.split("/"):
        if part == "**":
            if parts[-1:] != [None]:
                parts.append(None)
        elif part not in ("", "."):
            parts.append(re.compile(translate(part)))
    return parts


def _fits(parts: _Pattern, names: list[str]) -> bool:
    if not parts:
        return not names
    if parts[0] is None:
        return any(_fits(parts[1:], names[start:]) for start in range(len(names) + 1))
    return bool(names) and bool(parts[0].match(names[0])) and _fits(parts[1:], names[1:])
