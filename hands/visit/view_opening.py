"""A browser is led to a secret address by a file, for every local user reads its command line.

The file's folder is locked while it is needed. What is not locked is of a command that was killed,
and the next one removes it.
"""

import fcntl
import html
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}">'
_PREFIX = "carpal-view-"
_FRESH = 10.0
"""Seconds in which one that is just being made is locked."""


@contextmanager
def leading(address: str) -> Iterator[str]:
    """The URL of one that only its owner reads, and that is gone at the end of the block."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # 0700
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / "view.html"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(_PAGE.format(html.escape(address)))
        yield path.as_uri()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep() -> None:
    """Remove those of this user that no command has any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another's, in use, or gone already
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(handle)
                if found.st_uid == os.geteuid() and found.st_mtime < time.time() - _FRESH:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(handle)
