"""A disk of a given size for a hand, in memory: full is full inside, and the machine's own is not.

Only root can mount. What is mounted lies in the hand's folder, is found again
in the kernel's list, and goes with the hand.
"""

import ctypes
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_NOSUID, _NODEV = 2, 4
_DETACH, _NOFOLLOW = 2, 8


def mount(folder: Path, size: int, uid: int, gid: int) -> None:
    """An empty disk of `size` bytes, of that user's, at `folder`. Raises OSError."""
    options = f"size={size},mode=0700,uid={uid},gid={gid}"
    done = _libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", _NOSUID | _NODEV, options.encode())
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mounting a disk: {os.strerror(number)}")


def unmount_below(folder: Path) -> int:
    """Unmount all that is mounted at `folder` and below, innermost first; says how many."""
    count = 0
    for point in reversed(_points(folder.resolve())):
        if _libc.umount2(os.fsencode(point), _DETACH | _NOFOLLOW) == 0:
            count += 1
    return count


def _points(folder: Path) -> list[str]:
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        point = os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1"))
        if Path(point).is_relative_to(folder):
            found.append(point)
    return found
