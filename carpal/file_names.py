"""What a file is called here, of which a hand says the name and the kind. Pure.

Both are the hand's to choose, and lead out of no folder.
"""

import re
from pathlib import PurePosixPath

_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_MAX = 80
_SUFFIXES = {
    "image/png": (".png",),
    "image/jpeg": (".jpg", ".jpeg"),
    "image/gif": (".gif",),
    "image/webp": (".webp",),
    "application/pdf": (".pdf",),
}
"""What a file of a kind is called at its end, in lower case; the first where it is not."""


def file_name(name: str, media_type: str) -> str:
    """One name of at most 90 plain characters, `attachment` where nothing of its own is left."""
    last = PurePosixPath(name.replace("\\", "/")).name
    plain = _ODD.sub("_", last).strip("._-")[-_NAME_MAX:].lstrip("._-") or "attachment"
    suffixes = _SUFFIXES.get(media_type, ("",))
    return plain if plain.lower().endswith(suffixes) else plain + suffixes[0]
