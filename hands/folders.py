"""The folders of hands: one each, for the daemon's user alone, removed whole."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def make_parent(folder: Path) -> None:
    """Where hands' folders are."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make(folder: Path) -> None:
    """A hand's folder, empty and 0700."""
    folder.mkdir(mode=0o700)


def remove(folder: Path) -> None:
    """Remove a hand's folder and all in it; never what a symlink in it points to.

    Commands may have taken the permissions away that this needs; it gives
    them back. Raises OSError when something resists all the same.
    """
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder, onerror=_permit_and_retry)


def _permit_and_retry(action: Callable[[str], object], path: str, _error: object) -> None:
    for place in (os.path.dirname(path), path):  # noqa: PTH120 - a str, as rmtree gives it
        if not os.path.islink(place):  # noqa: PTH114
            os.chmod(place, 0o700)  # noqa: PTH101
    if action in (os.scandir, os.open, os.lstat):
        shutil.rmtree(path)
    else:
        action(path)
