"""The mark by which a hand's processes are known on their machine: one word in their environment.

It tells whoever reads it in the hand no path of the machine. The digest of the daemon's own folder
keeps the hands of several daemons apart, and whoever names hands from choosing whose processes end.
"""

import hashlib
import os
from pathlib import Path

NAME = "CARPAL_HAND"
_DIGITS = 24
"""Of the digest; enough that no two folders of one machine share it."""


def every(hands: Path) -> str:
    """How the marks begin of all hands whose folders are in `hands`, and of no others."""
    digest = hashlib.sha256(os.fsencode(hands.resolve())).hexdigest()[:_DIGITS]
    return f"{NAME}={digest}."


def mark(folder: Path) -> str:
    """Of the hand whose folder that is: `NAME=value`."""
    return f"{every(folder.parent)}{folder.name}"
