"""Links to pictures that results have attached: each leads to a copy on the operator's own machine.

A terminal opens no blob, and a picture of a hand's is on another machine. So what is shown is
copied once into the operator's cache, as a picture and nothing else, and what the session's newest
have no more is removed there.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from carpal.errors import CarpalError
from carpal.operator.attachment_rows import Attached
from carpal.operator.connection import Operator
from carpal.operator.files_out import verified
from carpal.operator.screen import notice
from carpal.pictures import MEDIA_TYPES
from carpal.tls import private_folder, write_file

SECONDS = 10.0
"""For all copies that are not there yet; a picture without one has no link this time."""
_BYTES_MAX = 5 * 1024 * 1024
"""Of one that is copied."""


async def links(
    operator: Operator, session_id: str, shown: Iterable[Attached]
) -> Mapping[Attached, str]:
    """A `file:` link for each picture of these that can have one. Raises nothing."""
    pictures = {each.file_name(): each for each in shown if _may(each)}
    folder = _folder(session_id)
    try:
        private_folder(folder)
        there = {path.name for path in folder.iterdir()}
        for name in there - pictures.keys():
            (folder / name).unlink()
    except OSError:
        return {}
    found: dict[Attached, str] = {}
    try:
        async with asyncio.timeout(SECONDS):
            for name, each in pictures.items():
                if name in there or await _copied(operator, each, folder / name):
                    found[each] = (folder / name).as_uri()
    except (CarpalError, OSError, TimeoutError):
        pass  # what is there has its link
    return found


def forget(session_id: str) -> None:
    """Remove the copies of a session's pictures: something of it is erased."""
    folder = _folder(session_id)
    try:
        if folder.is_dir():
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
    except OSError as error:
        notice(f"copies of its pictures are left in {folder}: {error.strerror}; remove them")


async def _copied(operator: Operator, each: Attached, path: Path) -> bool:
    """Whether it could be."""
    data = await verified(operator, each.digest, each.size)
    if data is not None:
        write_file(path, data)
    return data is not None


def _may(each: Attached) -> bool:
    """Only what is opened as a picture, by the end of its name: a page could run scripts there."""
    return each.media_type in MEDIA_TYPES and 0 < each.size <= _BYTES_MAX


def _folder(session_id: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "carpal" / "pictures" / session_id
