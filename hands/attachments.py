"""What a call of a Python hand type attaches to its result: bounded, and kept beside the hand's.

The bytes are in the folder `kept`, named by their digest, until the daemon takes them.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

COUNT_MAX = 20
"""Of one call."""
BYTES_MAX = 5 * 1024 * 1024
"""Of one of them."""


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
