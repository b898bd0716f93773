"""A hand's workspace as a blob: taken whole, then sent, and the same answer whenever it is asked.

It goes by a file of the daemon's own that has no name, so that nothing is left
of it whatever dies. What it holds is never looked at here: a mount unpacks it,
in a hand.
"""

import asyncio
import hashlib
import tempfile
from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import types_pb2
from hands.blobs import Blobs
from hands.contract import HandLost, MountFailed, Savable

BYTES_MAX = 5 * 1024**3
"""Of one: as many as a blob has."""
MEDIA_TYPE = "application/x-tar"


async def save(
    hand: Savable, blobs: Blobs, session_id: str, save_id: str, folder: Path
) -> pb.Attachment:
    """Save it; the file is in `folder` meanwhile. Raises SAVE_FAILED, HAND_GONE, what blobs do."""
    with tempfile.TemporaryFile(dir=folder) as file:
        digest, size = hashlib.sha256(), 0

        async def take(piece: bytes) -> None:
            nonlocal size
            size += len(piece)
            if size > BYTES_MAX:
                raise MountFailed(f"the workspace has more than {BYTES_MAX} bytes")
            digest.update(piece)
            await asyncio.to_thread(file.write, piece)

        try:
            said = await hand.save(take)
            file.flush()
        except HandLost as error:
            raise refuse(Reason.HAND_GONE, f"the hand is gone: {error}") from error
        except (MountFailed, OSError) as error:
            raise failed(str(error)) from error
        info = types_pb2.BlobInfo(digest=digest.digest(), size=size, media_type=MEDIA_TYPE)
        await blobs.write(session_id, file, info)
    return pb.Attachment(
        digest=info.digest, media_type=MEDIA_TYPE, size=size, name=f"{save_id}.tar ({said})"
    )


def failed(why: str) -> CarpalError:
    """The workspace could not be saved."""
    return refuse(Reason.SAVE_FAILED, f"the workspace is not saved: {why}")
