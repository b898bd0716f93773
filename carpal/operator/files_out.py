"""Files of a session's hands, written to a folder: those whose contents the log's blobs have."""

import errno
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from carpal.client import held, rpc_errors
from carpal.errors import CarpalError, invalid
from carpal.operator.connection import Operator
from carpal.operator.exporting import STREAM_SECONDS
from carpal.operator.screen import notice
from carpal.status import Reason
from carpal.v1 import session_pb2

_NO_USE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}
"""Of the folder, not of one file's path: no other file can be written either."""


@dataclass(frozen=True)
class File:
    """A file as the last call that touched it left it."""

    hand_id: str
    hand: str
    path: str
    size: int
    sha256: str
    """Empty when it was too large to read."""
    position: int
    """Of the result that says so."""
    kept: bool
    """Its content is a blob of the session's workspace, by that digest."""


async def write_files(operator: Operator, files: list[File], out: Path) -> None:
    """Write them to `out/HAND/PATH`; `out` must not be there yet. Says which cannot be written."""
    new_folder(out)
    missing = 0
    for file in files:
        try:
            ok = file.kept and await _write(operator, file, out)
        except OSError as error:
            if error.errno in _NO_USE:
                raise invalid("--out", f"{file.path[:200]!r} cannot be written: {error}") from None
            ok = False  # its path is another's folder, or too long
        except UnicodeEncodeError:
            ok = False
        missing += not ok
    notice(f"{len(files) - missing} files in {out}")
    if missing:
        notice(
            f"{missing} without their contents: of a hand without keep_files, too large, "
            "of a path that is none here, or that another file has"
        )


def new_folder(out: Path) -> None:
    """Make it. INVALID_FIELD when it is there, or cannot be."""
    try:
        out.mkdir()
    except FileExistsError:
        raise invalid("--out", f"{out} is there; name a new folder") from None
    except FileNotFoundError:
        raise invalid("--out", f"{out.parent} is not there; make it first") from None
    except OSError as error:
        raise invalid("--out", f"{out} cannot be made: {error.strerror}") from None


async def _write(operator: Operator, file: File, out: Path) -> bool:
    """Write one; False when its content is not there, or its path is none of a file here."""
    path = PurePosixPath(file.path)
    folder = file.hand or file.hand_id
    if path.is_absolute() or not path.parts or "\0" in file.path:
        return False
    if {"..", "", "."} & {*path.parts, folder}:
        return False
    if "/" in folder or "\0" in folder:
        return False
    to = out / folder / path
    to.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256()
    with to.open("xb") as target:
        try:
            async for data in content(operator, file.sha256):
                found.update(data)
                target.write(data)
        except CarpalError as error:
            if error.reason is not Reason.BLOB_NOT_FOUND:
                raise
    if found.hexdigest() != file.sha256:
        to.unlink()
        return False
    return True


async def verified(operator: Operator, digest: str, size: int) -> bytes | None:
    """A blob of that size by its digest in hex; None when it is not there, or is another."""
    pieces, came = [], 0
    try:
        async for data in content(operator, digest):
            pieces.append(data)
            came += len(data)
            if came > size:
                return None
    except CarpalError as error:
        if error.reason is not Reason.BLOB_NOT_FOUND:
            raise
        return None
    whole = b"".join(pieces)
    return whole if hashlib.sha256(whole).hexdigest() == digest else None


async def content(operator: Operator, digest: str) -> AsyncIterator[bytes]:
    """A blob's bytes by its digest in hex, which the caller checks; none of what is no digest."""
    try:
        request = session_pb2.GetBlobRequest(digest=bytes.fromhex(digest))
    except ValueError:
        return
    call = operator.sessions.GetBlob(request, timeout=STREAM_SECONDS)
    with rpc_errors(operator.sessiond), held(call):
        async for answer in call:
            yield answer.data
