"""A file or an archive put into the workspace, beneath it whatever the archive says.

Only files, folders and symbolic links that stay inside come out of an archive:
a path that leads out, a link that does, a device, a FIFO, a hard link are
refused, and no symlink is followed on the way. What is there already is
replaced, file by file. Everything belongs to who unpacks: the hand's user.
"""

import contextlib
import errno
import os
import secrets
import stat
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Protocol

from hands.inside.beneath import ToolError, Workspace, explain
from hands.inside.output import counted

BYTES_MAX = 5 * 1024**3
"""Of what comes out of one archive, and of one file."""
ENTRIES_MAX = 1_000_000
HEADER_MAX = 1024 * 1024
"""Bytes of a member's long name and attributes, which are read at once."""
_PIECE = 256 * 1024
PATH_MAX = 4000
"""Bytes of a path in a workspace: the kernel takes 4095 at once, a mount's own among them."""


class Source(Protocol):
    """Where bytes come from."""

    def read(self, size: int) -> bytes:
        """As many as asked for; fewer only at the end."""


def file(workspace: Workspace, path: str, source: Source) -> str:
    """Write one file; says how large it is. Raises ToolError."""
    written = _write(workspace, path, _pieces(source), 0o644)
    return f"{path}: {counted(written, 'byte')}"


def archive(workspace: Workspace, path: str, source: Source, top: str = "") -> str:
    """Unpack a tar, compressed or not, into a folder; says how much it was. Raises ToolError.

    `top` is a folder of the archive's that will be moved: no link in it leads out of that.
    """
    unpacking = _Unpacking(workspace, path, top)
    try:
        bounded: Any = _Bounded(source)  # it only reads from it, which the stubs do not say
        with tarfile.open(fileobj=bounded, mode="r|*", tarinfo=_Member) as tar:
            for member in tar:
                unpacking.take(tar, member)
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, MemoryError) as error:
        raise ToolError(f"the archive is not understood: {error or type(error).__name__}") from None
    while source.read(_PIECE):
        pass  # what follows the archive's end, so that its digest covers all of it
    unpacking.finish()
    return f"{path}: {counted(unpacking.entries, 'member')}, {counted(unpacking.size, 'byte')}"


class _Member(tarfile.TarInfo):
    """A member of which nothing is read at once but what is bounded: tarfile bounds nothing."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse()
        if self.type in _HEADERS and self.size > HEADER_MAX:
            raise tarfile.HeaderError(f"a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return] # not in the stubs

    def _proc_gnusparse_00(self, *_: object) -> None:
        raise _sparse()

    _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00


_HEADERS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
"""Types of members that are about other members."""


def _sparse() -> ToolError:
    return ToolError("the archive has sparse files; make it without --sparse")


class _Bounded:
    """A source that says when it is too long for any archive that is taken."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = BYTES_MAX + BYTES_MAX // 8

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ToolError(f"the archive has more than {BYTES_MAX} bytes")
        return data


class _Unpacking:
    """One archive on its way into one folder."""

    def __init__(self, workspace: Workspace, path: str, top: str = "") -> None:
        self._top = f"{top}/" if top else ""
        self.entries = 0
        self.size = 0
        self._workspace = workspace
        self._root = PurePosixPath(path)
        self._modes: dict[str, int] = {}
        """Of folders, set at the end: one that may not be written is filled first."""
        folders(workspace, str(self._root))

    def take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """One member."""
        self.entries += 1
        if self.entries > ENTRIES_MAX:
            raise ToolError(f"the archive has more than {ENTRIES_MAX} entries")
        name = _name(member)
        path = str(self._root / name)
        if member.isdir():
            folders(self._workspace, path)
            self._modes[path] = member.mode & 0o777 | 0o700
        elif member.isreg():
            self.size += member.size
            if self.size > BYTES_MAX:
                raise ToolError(f"the archive unpacks to more than {BYTES_MAX} bytes")
            content = tar.extractfile(member)
            assert content is not None  # it is a regular file
            mode = member.mode & 0o777 | 0o600
            written = _write(self._workspace, path, _pieces(content), mode, member.mtime)
            if written != member.size:
                raise ToolError(f"the archive ends in the middle of {name}")
        elif member.issym():
            _link(self._workspace, path, inside(name.removeprefix(self._top), member.linkname))
        else:
            raise ToolError(
                f"{name} is {_kind(member)}; only files, folders and symlinks are taken"
            )

    def finish(self) -> None:
        """Give folders the modes they had."""
        for path, mode in self._modes.items():
            handle = self._workspace.plain(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fchmod(handle, mode)
            finally:
                os.close(handle)


def inside(name: str, target: str) -> str:
    """The target of the symlink `name`, when it cannot lead out of its root. Raises ToolError.

    Only at its beginning may it go up: after the name of another symlink, `..` leads anywhere.
    """
    parts = PurePosixPath(target).parts
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    deep = len(PurePosixPath(name).parts) - 1
    bad = not target or target.startswith("/") or "\0" in target or len(target) > PATH_MAX
    if bad or up > deep or ".." in parts[up:]:
        raise ToolError(f"{name} is a symlink that leads out, to {target[:200]!r}")
    return target


def _name(member: tarfile.TarInfo) -> str:
    parts = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in parts or "\0" in member.name:
        raise ToolError(f"{member.name[:200]!r} leads out of the archive's own folder")
    if len(os.fsencode(member.name)) > PATH_MAX:
        raise ToolError(f"{member.name[:200]!r}… is too long a name")
    return str(PurePosixPath(*parts))


def _kind(member: tarfile.TarInfo) -> str:
    if member.islnk():
        return f"a hard link to {member.linkname[:200]!r}"
    if member.isfifo():
        return "a FIFO"
    return "a device" if member.isdev() else "of an unknown kind"


def _pieces(source: Source) -> Iterator[bytes]:
    while data := source.read(_PIECE):
        yield data


def folders(workspace: Workspace, path: str) -> None:
    """Make what is missing of a folder's path; through no symlink."""
    pure = PurePosixPath(path)
    made = _there(workspace, pure)
    for part in pure.parts[len(made.parts) :]:
        parent = parent_of(workspace, str(made))
        try:
            with contextlib.suppress(FileExistsError):  # or else the next open says so
                os.mkdir(part, 0o755, dir_fd=parent)
        except OSError as error:
            raise explain(path, error) from None
        finally:
            os.close(parent)
        made /= part
    os.close(parent_of(workspace, path))


def _there(workspace: Workspace, path: PurePosixPath) -> PurePosixPath:
    """It or what it is in, as far as that is there: else each of its folders is looked at."""
    for known in (path, path.parent):
        with contextlib.suppress(OSError):
            os.close(workspace.plain(str(known), os.O_PATH | os.O_DIRECTORY))
            return known
    return PurePosixPath()


def parent_of(workspace: Workspace, path: str) -> int:
    """A handle on a folder that is there, reached through no symlink. Raises ToolError."""
    try:
        return workspace.plain(path, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolError(f"{path} passes through a symlink, which is not followed") from None
        raise explain(path, error) from None


def _write(
    workspace: Workspace, path: str, pieces: Iterator[bytes], mode: int, mtime: float | None = None
) -> int:
    """Put a file in place, in one step at its end; how large it is."""
    pure = PurePosixPath(path)
    folders(workspace, str(pure.parent))
    parent = parent_of(workspace, str(pure.parent))
    aside = f".carpal-{os.getpid()}-{secrets.token_hex(4)}"  # a name's own bytes may fill a name
    written = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(aside, flags, 0o600, dir_fd=parent), "wb", buffering=0) as to:
            for data in pieces:
                written += len(data)
                if written > BYTES_MAX:
                    raise ToolError(f"{path} has more than {BYTES_MAX} bytes")
                view = memoryview(data)
                while view:
                    view = view[to.write(view) :]
            os.fchmod(to.fileno(), mode)
            if mtime is not None:
                os.utime(to.fileno(), (max(0.0, mtime), max(0.0, mtime)))
        os.rename(aside, pure.name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=parent)
        if isinstance(error, OSError):
            raise explain(path, error) from None
        raise
    finally:
        os.close(parent)
    return written


def _link(workspace: Workspace, path: str, target: str) -> None:
    pure = PurePosixPath(path)
    folders(workspace, str(pure.parent))
    parent = parent_of(workspace, str(pure.parent))
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(pure.name, dir_fd=parent).st_mode):
                os.unlink(pure.name, dir_fd=parent)
        os.symlink(target, pure.name, dir_fd=parent)
    except OSError as error:
        raise explain(path, error) from None
    finally:
        os.close(parent)
