"""Blobs in a folder of this machine, where there is no brain and so no log's store."""

import hashlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import types_pb2
from hands.blobs import Blobs

_PIECE = 192 * 1024


class FolderBlobs(Blobs):
    """Each is a file, named by its digest in hex."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made by the first of them."""
        super().__init__(0.0)
        self._folder = folder

    async def put(self, data: bytes) -> str:
        """Put bytes there; their SHA-256 in hex."""
        digest = hashlib.sha256(data)
        info = types_pb2.BlobInfo(digest=digest.digest(), size=len(data))
        await self.write("", io.BytesIO(data), info)
        return digest.hexdigest()

    async def write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        """Put it there."""
        data = file.read(info.size)
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / info.digest.hex()).write_bytes(data)

    async def read(self, session_id: str, digest: bytes) -> AsyncIterator[bytes]:
        """One of those there. Raises BLOB_NOT_FOUND."""
        try:
            data = (self._folder / digest.hex()).read_bytes()
        except FileNotFoundError:
            why = f"no blob {digest.hex()} here"
            raise refuse(Reason.BLOB_NOT_FOUND, why, digest=digest.hex()) from None
        for begin in range(0, len(data), _PIECE):
            yield data[begin : begin + _PIECE]
