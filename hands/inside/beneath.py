"""Opening files beneath the workspace and nowhere else, whatever symlinks are planted.

The kernel resolves the path (openat2, RESOLVE_BENEATH), so there is no moment
between checking and opening. A kernel without it gets a walk that follows no
symlink at all. What is opened is held as a handle that cannot be read yet, so
that a FIFO or a device is refused without being touched.
"""

import ctypes
import errno
import os
import stat
from pathlib import Path

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_libc = ctypes.CDLL(None, use_errno=True)


class ToolError(Exception):
    """What went wrong, in words a model can act on."""


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Workspace:
    """A folder whose files the file tools may reach."""

    def __init__(self, root: Path, handle: int | None = None) -> None:
        """`handle` is the folder, where that is not to be found as `root`."""
        self.root = root
        try:
            self._handle = handle or os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise explain(f"the workspace {root}", error) from None

    def within(self, folder: str, called: Path) -> "Workspace":
        """A folder of this one, made if need be, as a workspace of its own.

        Paths in it begin with `called`, as far as they are absolute, and none leads out of it.
        """
        try:
            self._make_folders(Path(folder))
            return Workspace(called, self._open(folder, os.O_PATH | os.O_DIRECTORY))
        except OSError as error:
            raise explain(str(called), error) from None

    def relative(self, path: str) -> str:
        """`path` from the workspace on; absolute ones must begin with it."""
        if not path.startswith("/"):
            return path
        for root in (self.root, self.root.resolve()):
            if path == str(root) or path.startswith(f"{root}/"):
                return path[len(str(root)) :].lstrip("/") or "."
        raise ToolError(f"{path} is outside the workspace {self.root}; use bash for it")

    def folder(self, path: str) -> int:
        """A handle on a folder."""
        try:
            return self._open(self.relative(path), os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise explain(path, error) from None

    def parent(self, path: str) -> tuple[int, str]:
        """A handle on the folder that `path` is in, and its name there; no symlink is it."""
        relative = Path(self.relative(path))
        if relative.name in ("", ".."):
            raise ToolError(f"{path} is not the path of something in a folder here")
        try:
            return self._open(str(relative.parent), os.O_PATH | os.O_DIRECTORY), relative.name
        except OSError as error:
            raise explain(path, error) from None

    def make_parent(self, path: str) -> None:
        """Make the folders that `path` is in, where they are missing."""
        try:
            self._make_folders(Path(self.relative(path)).parent)
        except OSError as error:
            raise explain(path, error) from None

    def existing(self, path: str) -> int:
        """A handle on whatever is there, for `os.fstat` and `reopen`."""
        try:
            return self._open(self.relative(path), os.O_PATH)
        except OSError as error:
            raise explain(path, error) from None

    def file(self, path: str, flags: int) -> int:
        """A regular file that exists, opened with `flags`."""
        handle = self.existing(path)
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise ToolError(f"{path} is {_kind(mode)}, not a regular file")
            return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC)
        except OSError as error:
            raise explain(path, error) from None
        finally:
            os.close(handle)

    def file_to_write(self, path: str) -> tuple[int, bool]:
        """A regular file to write, made with its folders if need be, and whether it was made."""
        name = self.relative(path)
        try:
            self._make_folders(Path(name).parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            return self._open(name, flags, 0o666), True
        except FileExistsError:
            return self.file(path, os.O_WRONLY), False
        except OSError as error:
            raise explain(path, error) from None

    def _make_folders(self, folder: Path) -> None:
        """Make what is missing of a folder's path, one name at a time, never following out."""
        made = Path()
        for part in folder.parts:
            parent = self._open(str(made), os.O_PATH | os.O_DIRECTORY)
            try:
                os.mkdir(part, dir_fd=parent)
            except FileExistsError:
                pass  # a folder, or else the next open says so
            finally:
                os.close(parent)
            made /= part

    def plain(self, name: str, flags: int) -> int:
        """What is there, through no symlink, not even one that stays inside. Raises OSError."""
        return self._open(name, flags, resolve=_RESOLVE_NO_SYMLINKS)

    def _open(self, name: str, flags: int, mode: int = 0, resolve: int = 0) -> int:
        resolve |= _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
        how = _How(flags | os.O_CLOEXEC, mode, resolve)
        path = os.fsencode(name)
        for _ in range(100):  # EAGAIN: something was renamed meanwhile; the kernel asks to retry
            handle = _libc.syscall(
                _OPENAT2, self._handle, path, ctypes.byref(how), ctypes.sizeof(how)
            )
            if handle >= 0:
                return int(handle)
            number = ctypes.get_errno()
            if number in (errno.ENOSYS, errno.EPERM):
                return walk_open(self._handle, name, flags, mode)
            if number != errno.EAGAIN:
                break
        raise OSError(number, os.strerror(number))


def walk_open(root: int, name: str, flags: int, mode: int = 0) -> int:
    """As `_open`, for kernels that lack openat2: every symlink on the way is refused."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    here = os.dup(root)
    try:
        for part in parts[:-1]:
            nearer = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = nearer
            if stat.S_ISLNK(os.fstat(here).st_mode):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        last = parts[-1] if parts else "."
        opened = os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=here)
    finally:
        os.close(here)
    if stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return opened


_WORDS = {
    errno.EXDEV: "leads out of the workspace, by a symlink or '..'; use bash for what is outside",
    errno.ELOOP: "passes through too many symlinks",
    errno.ENOENT: "does not exist; look with glob",
    errno.ENOTDIR: "passes through something that is not a folder",
    errno.EISDIR: "is a folder",
    errno.EACCES: "may not be opened: permission denied",
    errno.EPERM: "may not be opened: permission denied",
    errno.ENOSPC: "cannot be written: no space left",
    errno.EDQUOT: "cannot be written: no space left",
    errno.ENAMETOOLONG: "is too long a name",
}


def explain(path: str, error: OSError) -> ToolError:
    """The error in words, naming the path as the model gave it."""
    reason = _WORDS.get(error.errno or 0) or (error.strerror or "failed").lower()
    return ToolError(f"{path} {reason}")


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"
