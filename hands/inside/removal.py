"""Removing a folder with all in it, however deep it goes and whatever a command did to it.

`shutil.rmtree` calls itself and holds a descriptor for each level: a chain of a thousand folders,
which any command makes in a moment, ends it. Here what is in a folder moves up first, so nothing
is ever deep. Nothing goes through a symlink, or into what is mounted there.
"""

import errno
import os
from itertools import islice
from pathlib import Path

_AT_ONCE = 1000
"""Names held in memory."""
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(name: str | os.PathLike[str], dir_fd: int | None = None) -> None:
    """Remove a folder and all in it, taking back permissions that were taken away.

    Raises FileNotFoundError when there is none, and OSError for what resists, once the rest
    is gone.
    """
    top = _enter(name, dir_fd)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=dir_fd)


def _empty(top: int) -> None:
    resisting: dict[str, OSError] = {}
    while names := _names(top, resisting):
        for name in names:
            try:
                _remove(name, top, top)
            except FileNotFoundError:
                continue  # gone meanwhile
            except OSError as error:
                resisting[name] = error
    for first in resisting.values():
        raise first


def _remove(name: str, folder: int, top: int) -> None:
    """Remove a file or a folder in `folder`; what is in that folder may be in `top` then."""
    try:
        os.unlink(name, dir_fd=folder)
        return
    except IsADirectoryError:
        pass
    inner = _enter(name, folder)
    try:
        if os.fstat(inner).st_dev != os.fstat(top).st_dev:
            raise OSError(errno.EBUSY, "something is mounted there", name)
        if folder != top:
            os.rename(name, os.urandom(16).hex(), src_dir_fd=folder, dst_dir_fd=top)
            return
        while names := _names(inner, {}):
            for below in names:
                _remove(below, inner, top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)


def _names(folder: int, but: dict[str, OSError]) -> list[str]:
    with os.scandir(folder) as entries:
        return list(islice((entry.name for entry in entries if entry.name not in but), _AT_ONCE))


def _enter(name: str | os.PathLike[str], dir_fd: int | None) -> int:
    """A folder itself, which its owner may read and change from now on."""
    handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=dir_fd)
    try:
        place = f"/proc/self/fd/{handle}"  # of this very folder, whatever has its name by now
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            Path(place).chmod(0o700)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
