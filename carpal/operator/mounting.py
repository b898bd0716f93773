"""`--mount [NAME:]PATH=SOURCE` of `carpal run`: what of this machine goes along, as blobs.

A file becomes a blob, a folder an archive; what names a source already stays as it is.
"""

import asyncio
import hashlib
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from carpal.client import rpc_errors
from carpal.errors import invalid
from carpal.ids import check_name
from carpal.operator.connection import Operator
from carpal.upload import Upload
from carpal.v1 import session_pb2, types_pb2

NOTHING = "blob:" + hashlib.sha256(b"").hexdigest()
"""Stands for what is not uploaded yet, when a mount is checked."""
_REFS = ("git:", "text:", "blob:", "tar:", "session:")
_PIECE = 192 * 1024
_SECONDS = 3600.0


@dataclass(frozen=True)
class MountFlag:
    """One `--mount`."""

    hand: str
    """Empty for the default one."""
    path: str
    source: str
    """A source_ref; empty when it is of this machine."""
    local: Path


def read_mount(flag: str) -> MountFlag:
    """Read one. INVALID_FIELD when it is none, or names a file that is not there."""
    where, equals, source = flag.partition("=")
    name, colon, path = where.rpartition(":")
    if not equals or not path or not source:
        raise invalid("--mount", f"{flag!r} is not [NAME:]PATH=SOURCE, such as data=./data")
    if colon:
        check_name(name, "--mount")
    if source.startswith(_REFS):
        return MountFlag(name, path, source, Path())
    local = Path(source)
    if not local.is_file() and not local.is_dir():
        refs = ", ".join(_REFS)
        raise invalid(
            "--mount", f"{source!r} is no file or folder here, and begins with none of {refs}"
        )
    return MountFlag(name, path, "", local)


async def source_of(operator: Operator, flag: MountFlag) -> tuple[str, str, str]:
    """Hand, source_ref and path of a mount, whose bytes are there once this returns."""
    if flag.source:
        return flag.hand, flag.source, flag.path
    try:
        if flag.local.is_dir():
            with tempfile.TemporaryFile() as packed:
                await asyncio.to_thread(_pack, flag.local, packed)
                digest = await _upload(operator, packed, "application/x-tar")
            return flag.hand, f"tar:{digest}", flag.path
        with flag.local.open("rb") as file:
            digest = await _upload(operator, file, "application/octet-stream")
    except OSError as error:
        raise invalid("--mount", f"{flag.local}: {error.strerror or error}") from None
    return flag.hand, f"blob:{digest}", flag.path


def _pack(folder: Path, to: IO[bytes]) -> None:
    with tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
            tar.inodes.clear()  # type: ignore[attr-defined] # a file of two names goes twice
            return None if info.isfifo() or info.isdev() else info

        tar.add(folder, arcname=".", filter=kept)


async def _upload(operator: Operator, file: IO[bytes], media_type: str) -> str:
    file.seek(0)
    digest = await asyncio.to_thread(hashlib.file_digest, file, "sha256")  # type: ignore[arg-type] # it reads
    info = types_pb2.BlobInfo(digest=digest.digest(), size=file.tell(), media_type=media_type)
    upload = Upload(operator.sessions.PutBlob(timeout=_SECONDS))
    try:
        with rpc_errors(operator.sessiond):
            going = await upload.send(session_pb2.PutBlobRequest(info=info))
            file.seek(0)
            while going and (data := await asyncio.to_thread(file.read, _PIECE)):
                piece = session_pb2.PutBlobRequest(offset=file.tell() - len(data), data=data)
                going = await upload.send(piece)
            await upload.answer()
    finally:
        upload.close()
    return digest.hexdigest()
