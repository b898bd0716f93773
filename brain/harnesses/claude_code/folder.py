"""A home for one process of Claude Code, gone when it is.

It reads its settings and writes its files here, and nowhere else. A brain that
is killed cannot clear up, so the next start does: a folder is held by a lock
that ends with whoever held it.
"""

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "carpal-claude-code-"
_MAKING = "carpal-claude-code.new-"
_MADE_WITHIN = 600.0
"""Seconds after which a folder that is still being made is nobody's."""


class Folder:
    """A folder that only its user may enter; held until `remove`."""

    def __init__(self) -> None:
        """Make one, and clear away those of brains that are no more."""
        base = Path(tempfile.gettempdir())
        _sweep(base)
        made = Path(tempfile.mkdtemp(prefix=_MAKING, dir=base))
        self._lock = os.open(made / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # It gets its name only now: unlocked under that, another brain would take it for left.
        self.path = made.rename(base / made.name.replace(_MAKING, _PREFIX))
        self.work = self.path / "work"
        self.config = self.path / "config"
        for part in (self.work, self.config, self.path / "tmp"):
            part.mkdir()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(base: Path) -> None:
    for folder in base.glob(_PREFIX + "*"):
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # another user's, or just gone
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass  # at work
        finally:
            os.close(lock)
    for folder in base.glob(_MAKING + "*"):
        try:
            if time.time() - folder.stat().st_mtime > _MADE_WITHIN:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            continue
