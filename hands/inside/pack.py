"""The workspace as a tar, such that `unpack` takes all of it again.

Files, folders and symlinks that stay inside. What could not be restored is left
out and counted: links that lead out, sockets, FIFOs, devices, what may not be read, what is
deeper than a path is long.
"""

import os
import stat
import tarfile
from collections.abc import Iterator
from typing import Any, Protocol

from hands.inside.beneath import ToolError, Workspace
from hands.inside.output import counted
from hands.inside.unpack import BYTES_MAX, ENTRIES_MAX, PATH_MAX, inside

_PIECE = 256 * 1024
_NAMED = 5
"""Paths that were left out and are named."""


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes) -> int:
        """All of them."""


class _Packing:
    def __init__(self, tar: tarfile.TarFile, top: str = "") -> None:
        """`top` is what all of it is in, there."""
        self.entries = 0
        self.size = 0
        self.left_out: list[str] = []
        self._tar = tar
        self._top = f"{top}/" if top else ""

    def all(self, workspace: Workspace) -> None:
        """Everything, each folder before what is in it; however deep, one is open at a time."""
        left = [""]
        while left:
            path = left.pop()
            try:
                handle = workspace.plain(path or ".", os.O_RDONLY | os.O_DIRECTORY)
                try:
                    left += reversed(self._folder(handle, path))
                finally:
                    os.close(handle)
            except OSError:
                self.left_out.append(path)  # it may not be read, or went away

    def _folder(self, handle: int, name: str) -> list[str]:
        """All in an open folder but what is in its folders: their paths."""
        folders = []
        for each in sorted(os.listdir(handle)):
            path = f"{name}/{each}" if name else each
            try:
                if self._entry(handle, each, path):
                    folders.append(path)
            except OSError:
                self.left_out.append(path)
        return folders

    def _entry(self, folder: int, name: str, path: str) -> bool:
        """Write one; whether it is a folder."""
        found = os.lstat(name, dir_fd=folder)
        info = tarfile.TarInfo(self._top + path)
        info.mode, info.mtime = found.st_mode & 0o777, int(found.st_mtime)
        self.entries += 1
        if self.entries > ENTRIES_MAX:
            raise ToolError(f"the workspace has more than {ENTRIES_MAX} entries")
        if len(os.fsencode(path)) > PATH_MAX:
            self.left_out.append(path)
        elif stat.S_ISDIR(found.st_mode):
            info.type = tarfile.DIRTYPE
            self._tar.addfile(info)
            return True
        elif stat.S_ISREG(found.st_mode):
            self._file(folder, name, info)
        elif stat.S_ISLNK(found.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
            try:
                inside(path, info.linkname)
            except ToolError:
                self.left_out.append(path)
            else:
                self._tar.addfile(info)
        else:
            self.left_out.append(path)
        return False

    def _file(self, folder: int, name: str, info: tarfile.TarInfo) -> None:
        # What was a file may be a FIFO by now: it must not be waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OSError(f"{name} is no file any more")
            info.size = found.st_size
            self.size += info.size
            if self.size > BYTES_MAX:
                raise ToolError(f"the workspace has more than {BYTES_MAX} bytes")
            content: Any = _Exactly(file, info.size)
            self._tar.addfile(info, content)


class _Exactly:
    """A file that is as long as it was, whatever is done to it meanwhile; zeros in its place."""

    def __init__(self, file: "Source", size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        try:
            data = self._file.read(size)
        except OSError:
            data = b""  # its size was told already
        self._left -= size
        return data + bytes(size - len(data))


class Source(Protocol):
    """A file."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes."""


def pack(workspace: Workspace, sink: Sink) -> str:
    """Write all of the workspace; says how much it was. Raises ToolError."""
    os.close(workspace.folder("."))  # without it there is nothing to save
    with _writing(sink) as tar:
        packing = _Packing(tar)
        packing.all(workspace)
    return _said(packing)


def pack_folder(folder: Workspace, top: str, sink: Sink) -> str:
    """Write all of a folder, as one that is called `top`; says how much it was."""
    info = tarfile.TarInfo(top)
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    with _writing(sink) as tar:
        tar.addfile(info)
        packing = _Packing(tar, top)
        packing.all(folder)
    return _said(packing)


def pack_file(handle: int, top: str, sink: Sink) -> str:
    """Write one file that is open, as one that is called `top`; says how large it was."""
    found = os.fstat(handle)
    info = tarfile.TarInfo(top)
    info.mode, info.mtime, info.size = found.st_mode & 0o777, int(found.st_mtime), found.st_size
    if info.size > BYTES_MAX:
        raise ToolError(f"it has more than {BYTES_MAX} bytes")
    with _writing(sink) as tar, os.fdopen(handle, "rb", closefd=False) as file:
        content: Any = _Exactly(file, info.size)
        tar.addfile(info, content)
    return counted(info.size, "byte")


def _writing(sink: Sink) -> tarfile.TarFile:
    to: Any = sink  # it only writes to it, which the stubs do not say
    return tarfile.open(fileobj=to, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_PIECE)


def _said(packing: _Packing) -> str:
    said = f"{counted(packing.entries, 'member')}, {counted(packing.size, 'byte')}"
    return "; ".join((said, *_left_out(packing.left_out)))


def _left_out(paths: list[str]) -> Iterator[str]:
    if paths:
        named = ", ".join(repr(path[:100]) for path in paths[:_NAMED])
        yield f"left out, since they could not be restored: {len(paths)} ({named})"
