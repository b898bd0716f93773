"""What a call of a Python hand type attaches to its result, and what it is given of such.

What it attaches is bounded, and its bytes are in the folder `kept` beside the hand's, named by
their digest, until the daemon takes them.
"""

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from hands.inside.beneath import Workspace

COUNT_MAX = 20
"""Of one call."""
BYTES_MAX = 5 * 1024 * 1024
"""Of one of them."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Attached(NamedTuple):
    """One of them."""

    digest: str
    """SHA-256, in hex."""
    size: int
    media_type: str
    name: str


def problem(count: int, data: bytes, name: str) -> str:
    """Why it cannot be attached beside so many others; empty when it can."""
    if count >= COUNT_MAX:
        return f"a result has at most {COUNT_MAX} attachments"
    if len(data) > BYTES_MAX:
        return f"{name or 'it'} has {len(data)} bytes, more than {BYTES_MAX}"
    return ""


def keep(beside: Path, data: bytes, media_type: str, name: str) -> Attached:
    """Keep its bytes in the folder that the hand's own is in."""
    digest = hashlib.sha256(data).hexdigest()
    kept = beside / "kept"
    kept.mkdir(mode=0o700, exist_ok=True)
    (kept / digest).write_bytes(data)
    return Attached(digest, len(data), media_type, name)


def given(folder: Path, digest: str) -> bytes | None:
    """What the daemon put into the folder because a call names it; None for what is not there."""
    if not _DIGEST.fullmatch(digest):
        return None
    try:
        with os.fdopen(mounted(folder, f"blobs/{digest}"), "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None


def mounted(folder: Path, path: str) -> int:
    """What is in the folder, opened to read through no symlink. Raises OSError.

    A repository that is mounted there may hold symlinks to any file of the machine.
    """
    root = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return Workspace(folder, root).plain(path, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(root)
