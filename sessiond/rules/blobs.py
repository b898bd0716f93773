"""The rules of blobs: what may be put where, and when one is whole. Pure.

Bytes that are held are not compared with those sent again: the digest of the whole judges
them, before anyone can read the blob. Of what does not have its digest nothing is kept.
"""

import re
from hashlib import sha256
from typing import NamedTuple

from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import types_pb2
from sessiond.rules.sessions import own_workspace
from sessiond.store import Reader, Transaction
from sessiond.store_blobs import BlobRow, BlobState

BLOB_BYTES = 5 * 1024**3
PIECE_BYTES = 256 * 1024
BLOB_CAP = 50 * 1024**3
"""Bytes of one workspace's blobs, unless it is set."""
HASHED_PIECES = 16
"""Read back at once: other reads have their turn in between."""
_MEDIA_TYPE = re.compile(r"[ -~]{0,255}\Z")


class Wanted(NamedTuple):
    """The blob that a caller means to put."""

    workspace: str
    digest: bytes
    size: int
    media_type: str


def wanted(caller: Identity, workspace: str, info: types_pb2.BlobInfo) -> Wanted:
    """From a stream's first message, or INVALID_FIELD."""
    if info.size > BLOB_BYTES:
        raise invalid("info.size", f"{info.size} bytes; a blob has at most {BLOB_BYTES}")
    if not _MEDIA_TYPE.match(info.media_type):
        raise invalid("info.media_type", "must be at most 255 printable ASCII characters")
    digest = check_digest(info.digest, "info.digest")
    return Wanted(own_workspace(caller, workspace), digest, info.size, info.media_type)


def check_digest(digest: bytes, field: str) -> bytes:
    """`digest`, or INVALID_FIELD when it is no SHA-256."""
    if len(digest) != 32:
        raise invalid(field, f"must be a SHA-256 of 32 bytes, not {len(digest)}")
    return digest


def is_done(row: BlobRow | None) -> bool:
    """Whether there is nothing to put any more."""
    return row is not None and row.state is BlobState.COMPLETE


def held(row: BlobRow | None, wanted: Wanted) -> int:
    """Bytes that need not be sent. An upload under another size is another upload."""
    return row.held if row is not None and row.size == wanted.size else 0


def beyond(held: int) -> CarpalError:
    """The refusal of bytes that would leave a gap."""
    return invalid("offset", f"only {held} bytes are held; a stream without data asks how many")


def too_much(wanted: Wanted) -> CarpalError:
    """The refusal of bytes behind the declared end."""
    return invalid("data", f"is more than the {wanted.size} bytes that info.size declares")


def put(tx: Transaction, wanted: Wanted, start: int, data: bytes, cap: int) -> BlobRow:
    """Keep the bytes that are not held yet. `start` is where `data` begins.

    Of two sizes for one digest one is wrong, and nobody can tell which: who begins anew
    has the last word.
    """
    row = tx.blobs.find(wanted.workspace, wanted.digest)
    if row is not None and row.state is BlobState.COMPLETE:
        return row
    have = held(row, wanted)
    if start > have:
        raise beyond(have)
    if start + len(data) > wanted.size:
        raise too_much(wanted)
    if row is None or row.size != wanted.size:
        total = tx.blobs.total(wanted.workspace) - (row.size if row is not None else 0)
        if total + wanted.size > cap:
            raise refuse(
                Reason.STORE_FULL,
                f"blobs of workspace {wanted.workspace!r} have {total} of {cap} bytes, "
                f"and this one has {wanted.size}",
                action="raise sessiond's blob_cap",
                workspace=wanted.workspace,
            )
        if row is not None:
            tx.blobs.drop(row)
        row = tx.blobs.add(BlobRow(**wanted._asdict()))
    fresh = data[have - start :]
    return tx.blobs.add_data(row, fresh) if fresh else row


class Reading:
    """The digest of a blob whose bytes are all here, read back in steps of bounded memory."""

    def __init__(self, row: BlobRow) -> None:
        self._row = row
        self._offset = 0
        self._digest = sha256()

    def step(self, reader: Reader) -> bool:
        """Read on; whether the end was reached. DATA_CORRUPT when the store lost bytes."""
        for _ in range(HASHED_PIECES):
            if self._offset == self._row.size:
                return True
            piece = reader.blobs.piece(self._row, self._offset)
            self._digest.update(piece)
            self._offset += len(piece)
        return self._offset == self._row.size

    def problem(self) -> CarpalError | None:
        """What is wrong with what was read."""
        if self._digest.digest() == self._row.digest:
            return None
        return refuse(
            Reason.DIGEST_MISMATCH,
            f"the bytes have the digest {self._digest.hexdigest()}, not {self._row.digest.hex()}",
            action="send them again, from 0",
            digest=self._row.digest.hex(),
        )


def settle(tx: Transaction, read: BlobRow, problem: CarpalError | None) -> BlobRow | None:
    """Complete the blob as it was read back, or drop it; the answer is None when dropped.

    Another stream may have settled the same blob meanwhile.
    """
    row = tx.blobs.find(read.workspace, read.digest)
    if row is not None and row.state is BlobState.COMPLETE:
        return row
    if row != read:
        raise beyond(row.held if row is not None else 0)
    if problem is None:
        return tx.blobs.complete(read)
    tx.blobs.drop(read)
    return None


def find(reader: Reader, workspace: str, digest: bytes) -> BlobRow:
    """A complete blob of the workspace, or BLOB_NOT_FOUND."""
    row = reader.blobs.find(workspace, digest)
    if row is None or row.state is not BlobState.COMPLETE:
        raise refuse(
            Reason.BLOB_NOT_FOUND,
            f"no blob {digest.hex()} in workspace {workspace!r}",
            digest=digest.hex(),
            workspace=workspace,
        )
    return row
