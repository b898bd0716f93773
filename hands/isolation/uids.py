"""A user id for each live hand, so that what runs in one cannot touch another's, nor the daemon's.

Nothing is written down: the owner of a hand's folder is its user, so what a crash leaves is
found again. Only root can give folders away; a daemon that is not has no more than its own.
"""

import os
from collections.abc import Callable
from pathlib import Path

from hands.contract import ProvisionFailed

FIRST = 1_879_048_192
"""Above what system, people, directories and containers are given (subordinate ids end at
600,100,000, systemd's own at 1,879,048,191) and below 2 ** 31."""
COUNT = 100_000


def own(folder: Path, first: int = FIRST, count: int = COUNT) -> int:
    """Give the folder of a hand to a user no other hand beside it has; says which.

    The daemon's own user when it is not root. Must not be awaited within: two hands that are
    made at once would get the same.
    """
    if os.geteuid() != 0:
        return os.geteuid()
    taken = {path.lstat().st_uid for path in folder.parent.iterdir() if path != folder}
    free = next((uid for uid in range(first, first + count) if uid not in taken), None)
    if free is None:
        raise ProvisionFailed(f"all {count} user ids for hands are taken")
    give(folder, free)
    return free


def give(path: Path, uid: int) -> None:
    """Give one file or folder to a hand's user; nothing when the daemon is not root."""
    if os.geteuid() == 0:
        os.chown(path, uid, uid, follow_symlinks=False)


def anothers(folder: Path) -> Callable[[int], bool]:
    """Says of a user id whether it is another hand's than the one in `folder`."""
    try:
        its = owner(folder)
    except FileNotFoundError:
        return lambda _uid: False
    return lambda uid: FIRST <= uid < FIRST + COUNT and uid != its


def owner(folder: Path) -> int:
    """Whose a hand's folder is."""
    return folder.lstat().st_uid
