"""Pictures that `read` comes upon: they leave the hand as they are, and a line stands for each.

The bytes go into the hand's folder, where the daemon takes them, like the
contents of changed files. What is no picture is none of this file's.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hands.inside.beneath import ToolError, Workspace, explain
from hands.inside.history import put

BYTES_MAX = 5 * 1024 * 1024
"""Of one; what its disk leaves for such bytes in a hand whose disk is limited is more."""
_NAME_MAX = 255
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def media_type(beginning: bytes) -> str:
    """Of a picture that begins so, by its first 12 bytes; empty for anything else."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _BEGINNINGS if beginning.startswith(start)), "")


def read(workspace: Workspace, given: Mapping[str, Any], folder: Path) -> dict[str, Any] | None:
    """The answer of a `read` of a picture, whose bytes are put into `folder`; None if it is none.

    `text` stands for it, and `attachments` says it.
    """
    path: str = given["file_path"]
    with os.fdopen(workspace.file(path, os.O_RDONLY), "rb") as file:
        try:
            kind = media_type(file.read(12))
            if not kind:
                return None
            file.seek(0)
            data = file.read(BYTES_MAX + 1)
            size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise explain(path, error) from None
    if len(data) > BYTES_MAX:
        limit = f"more than the {BYTES_MAX} that a picture may have; make it smaller with bash"
        raise ToolError(f"{path} is a picture of {size} bytes, {limit}")
    import hashlib  # loads OpenSSL: other calls are sooner done without

    digest = hashlib.sha256(data).hexdigest()
    if not put(data, folder / digest):
        raise ToolError(f"{path} is a picture, and there is no room to hand it over")
    name = path.rpartition("/")[2][-_NAME_MAX:]
    told = {"name": name, "media_type": kind, "size": len(data), "digest": digest}
    text = f"[{kind}, {len(data)} bytes, sha256 {digest}: attached]"
    return {"text": text, "attachments": [told]}
