"""The owner's folder that a hand is to work in: which ones it may be, and that it is that one.

Whoever names it may be misled, and other hands write beside it: no symlink is followed on the
way, nothing of the kernel's or of the daemon's own is given away, and what the hand got in the
end is held against what was looked at.
"""

import ctypes
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from carpal.errors import invalid
from hands.contract import Order, ProvisionFailed
from hands.isolation import bwrap

_FIELD = "config.workspace"
_libc = ctypes.CDLL(None, use_errno=True)
_KERNELS = {
    0x9FA0: "proc",
    0x62656572: "sysfs",
    0x27E0EB: "cgroup",
    0x63677270: "cgroup2",
    0x1CD1: "devpts",
    0x64626720: "debugfs",
    0x74726163: "tracefs",
    0x73636673: "securityfs",
    0x62656570: "configfs",
    0xCAFE4A11: "bpf",
    0x19800202: "mqueue",
    0x6E736673: "nsfs",
    0xDE5E81E4: "efivarfs",
    0x42494E4D: "binfmt_misc",
    0x6165676C: "pstore",
    0xF97CFF8C: "selinuxfs",
    0x65735543: "fusectl",
    0x958458F6: "hugetlbfs",
}
"""File systems that are the kernel's own, by their magic numbers: no place to work in."""
_MEMORY = 0x01021994
"""Of tmpfs, and of what /dev is."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A folder of the machine's that was looked at."""

    path: Path
    """Absolute, without symlinks."""
    found: os.stat_result

    def check(self, pid: int) -> None:
        """Raises ProvisionFailed when the hand of that supervisor got another folder.

        Nothing of it ran yet. Where its folders cannot be seen from here, as another runtime's
        may not be, nothing is known.
        """
        try:
            given = os.stat(f"/proc/{pid}/root{bwrap.WORKSPACE}")  # noqa: PTH116 - no path of ours
        except OSError:
            return
        if (given.st_dev, given.st_ino) != (self.found.st_dev, self.found.st_ino):
            raise ProvisionFailed(f"{str(self.path)!r} was exchanged while the hand was made")


def bound(order: Order) -> Bound | None:
    """The folder that was asked for as the workspace. Raises INVALID_FIELD for what it cannot be.

    That a hand is never root is looked at later, by who makes it its owner's.
    """
    given = order.config.get("workspace")
    if given is None:
        return None
    if problem := _no_workspace(given):
        raise invalid(_FIELD, f"{given!r} {problem}")
    path = Path("/", given.lstrip("/"))  # a path of two slashes would be another
    own = order.folder.resolve().parent.parent
    if path.is_relative_to(own) or own.is_relative_to(path):
        raise invalid(_FIELD, f"{given!r} is or holds what is the daemon's own")
    handle = _opened(path)
    try:
        kind = _kind(handle)
        if kind in _KERNELS or (kind == _MEMORY and path.parts[1:2] in (("dev",), ("run",))):
            raise invalid(_FIELD, f"{given!r} is the system's own, and no folder of files")
        return Bound(path, os.fstat(handle))
    finally:
        os.close(handle)


def _no_workspace(given: str) -> str:
    """Why that cannot be one; empty when it can."""
    if not given.startswith("/"):
        return "is not an absolute path: say it from / on, as it is on the daemon's machine"
    if ".." in given.split("/"):
        return "goes up by '..': name the folder itself"
    try:
        mode = os.stat(given).st_mode  # noqa: PTH116 - it may be no path at all
    except FileNotFoundError:
        return "is not there: make the folder on the daemon's machine"
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        return f"cannot be used: {why.lower()}"
    if not stat.S_ISDIR(mode):
        return "is there, and is no folder"
    return "" if os.access(given, os.R_OK | os.X_OK) else "may not be entered by the daemon's user"


def _opened(path: Path) -> int:
    """The folder; no part of its path may be a symlink, which a hand may have made."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open("/", flags)
    for number, name in enumerate(path.parts[1:], 2):
        at = Path(*path.parts[:number])
        try:
            deeper = os.open(name, flags, dir_fd=handle)
        except OSError as error:
            if at.is_symlink():
                raise invalid(
                    _FIELD, f"{str(path)!r} goes by a symlink, {str(at)!r}; name the folder itself"
                ) from error
            raise invalid(
                _FIELD, f"{str(path)!r} is not an absolute path of a folder here: {error.strerror}"
            ) from error
        finally:
            os.close(handle)
        handle = deeper
    return handle


def _kind(handle: int) -> int:
    """The magic number of the file system that an open folder is on."""
    about = (ctypes.c_long * 64)()  # more than a struct statfs, whose first field it is
    if _libc.fstatfs(handle, ctypes.byref(about)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(about[0]) & 0xFFFFFFFF
