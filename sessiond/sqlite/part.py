"""Files that are written beside their place, and get their name once they are whole.

Whoever writes one holds a lock on it, which the kernel lets go of when its process ends: so
what a killed one left is told from what another writes, and removed by whoever comes next.
"""

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from carpal.errors import refuse
from carpal.status import Reason
from sessiond.sqlite.connection import RESERVED

_NAME = re.compile(r"\..+\.\d+\.part", re.ASCII | re.DOTALL)
_SQLITE = b"SQLite format 3\0"


@contextmanager
def part_of(to: Path) -> Iterator[Path]:
    """An empty file beside `to`, of this user alone, which is gone afterwards.

    CONFIG_INVALID when it cannot be made.
    """
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        _remove_left(to.parent)
        held = _made(part)
    except OSError as error:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{to} cannot be written: {error.strerror}",
            action="choose another place",
        ) from None
    try:
        yield part
    finally:
        _remove(part)
        os.close(held)


def _made(part: Path) -> int:
    """Make the file; its lock is held by what is returned."""
    while True:
        held = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _lock(held)
            os.ftruncate(held, 0)
            if _is_at(held, part):
                return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)  # it was taken for left, and removed, before it was locked


def _lock(held: int) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # no locks on this disk: nothing will be taken for left either


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _remove_left(folder: Path) -> None:
    """Remove what processes that are gone left in the folder."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return  # one that cannot be listed may yet be written to
    for path in found:
        if _NAME.fullmatch(path.name):
            with suppress(OSError):  # another's, another writes it, or it has just gone
                _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(file).st_mode) and _is_ours(os.pread(file, 100, 0)):
            _remove(path)
    finally:
        os.close(file)


def _is_ours(header: bytes) -> bool:
    """Whether the file is empty, or a store whose pages have checksums, begun or whole."""
    return not header or (header.startswith(_SQLITE) and header[20:21] == bytes([RESERVED]))


def _remove(part: Path) -> None:
    for suffix in ("-journal", "-wal", "-shm", ""):
        part.with_name(part.name + suffix).unlink(missing_ok=True)
