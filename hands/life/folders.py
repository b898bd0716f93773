"""The folders of hands: one each, for the daemon's user alone, removed whole."""

import contextlib
from pathlib import Path

from hands.inside.removal import remove_tree
from hands.isolation import disk


def make_parent(folder: Path) -> None:
    """Where hands' folders are."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make(folder: Path) -> None:
    """A hand's folder, empty and 0700."""
    folder.mkdir(mode=0o700)


def remove(folder: Path) -> None:
    """Remove a hand's folder, all in it and its disks; never what a symlink in it points to.

    Raises OSError when something resists.
    """
    # Not before: results and output that nobody took yet are on a disk of the hand's own.
    disk.unmount_below(folder)
    with contextlib.suppress(FileNotFoundError):
        remove_tree(folder)
