"""Contents of files that a call changed: taken from the hand's folder and put where the log is.

Before the result is told, so that what the log names is there. What cannot be put there is told
without its content: a link that is away for long holds up no call for ever.
"""

import contextlib
import dataclasses
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from carpal.errors import CarpalError
from carpal.v1 import types_pb2
from hands.api import FileChange, Result
from hands.blobs import Blobs
from hands.inside.history import KEPT

log = logging.getLogger(__name__)


async def taken(result: Result, hand_folder: Path, blobs: Blobs, sessions: Sequence[str]) -> Result:
    """The result, with those files kept that are blobs by now."""
    if not any(change.kept for change in result.files):
        return result
    there: dict[bytes, bool] = {}
    for change in result.files:
        if change.kept and change.digest not in there:
            # One that fails is asked for no more: each may cost the whole wait for a link.
            ok = all(there.values()) and bool(sessions)
            there[change.digest] = ok and await _put(change, hand_folder, blobs, sessions[0])
    files = [
        dataclasses.replace(each, kept=each.kept and there[each.digest]) for each in result.files
    ]
    return dataclasses.replace(result, files=files)


async def _put(change: FileChange, hand_folder: Path, blobs: Blobs, session_id: str) -> bool:
    """Whether it is a blob now. What the hand put in its place is no more than what it says."""
    name, info = change.digest.hex(), types_pb2.BlobInfo(digest=change.digest, size=change.size)
    try:
        with _folder(hand_folder) as folder:
            with _regular(folder, name) as content:
                await blobs.write(session_id, content, info)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    except (CarpalError, OSError) as error:
        log.warning("content not kept", extra={"path": change.path[:200], "why": str(error)})
        return False
    return True


@contextmanager
def _folder(hand_folder: Path) -> Iterator[int]:
    """Never what a link in its place leads to: a hand would have files of others removed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(hand_folder / KEPT, flags)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _regular(folder: int, name: str) -> Iterator[IO[bytes]]:
    """A file, and no link, pipe or device in its place."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{name} is no file")
        yield file
