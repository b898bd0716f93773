"""Logs as mounts: `session:<id>` of a hand becomes a blob that its daemon may read.

The log then says which blob, and of which session up to where, in the hand's
`hand.provision_requested`; to the daemon it is an archive like any other.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Callable
from typing import IO, Any

from brain.hands.log_archive import LogArchive
from brain.session.driver import Driver
from brain.session.store_reads import head_of, keep_file, read_exact
from carpal.errors import CarpalError, refuse
from carpal.mounts import ITSELF, Mount, as_error, parse
from carpal.status import Reason
from carpal.v1 import types_pb2

_IN_MEMORY = 8 * 1024 * 1024
"""Bytes of an archive that are held; of a larger one all is in a file that has no name."""
MEDIA_TYPE = "application/x-tar"


class SessionMounts:
    """The mounts of logs in the hands of one driven session."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def made(self, resources: list[list[str]], tell: Callable[[str], None]) -> dict[str, Any]:
        """`resources` with an archive for each log, and `sessions` that says which is which.

        MOUNT_NOT_FOUND for a session that the workspace does not have, PROVISION_FAILED else.
        """
        mounted: list[list[str]] = []
        sessions: list[dict[str, Any]] = []
        for index, (source, path) in enumerate(resources):
            mount = parse(source, path, f"mounts[{index}]")
            if mount.kind != "session":
                mounted.append([source, path])
                continue
            tell(f"reading the log for {mount}")
            try:
                told, digest = await self._make(mount)
            except CarpalError as error:
                if error.reason is Reason.STALE_EPOCH:
                    raise
                absent = error.reason is Reason.SESSION_NOT_FOUND
                reason = Reason.MOUNT_NOT_FOUND if absent else Reason.PROVISION_FAILED
                why = error.message if absent else str(error)
                raise as_error(index, mount.path, why, reason) from error
            mounted.append([f"tar:{digest}", path])
            sessions.append({"path": path, **told})
        return {"resources": mounted} | ({"sessions": sessions} if sessions else {})

    async def _make(self, mount: Mount) -> tuple[dict[str, Any], str]:
        """What the log says of it, and the archive's digest."""
        driver = self._driver
        session_id = driver.session_id if mount.source == ITSELF else mount.source
        head = await driver.patiently(lambda stub: head_of(stub, session_id, driver.workspace))
        first, last = mount.positions
        last = min(last or head, head)
        if first > last:
            raise refuse(Reason.POSITION_BEYOND_HEAD, f"the log of {session_id} ends at {head}")
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
            try:
                await self._write(file, session_id, first, last)
                info = await asyncio.to_thread(_info, file)
            except OSError as error:
                why = f"the brain cannot write the archive: {error.strerror or error}"
                raise refuse(Reason.UNAVAILABLE, why) from None
            await driver.patiently(lambda stub: keep_file(stub, driver.workspace, info, file))
        told = {"session_id": session_id, "from": first, "through": last, "size": info.size}
        return told, info.digest.hex()

    async def _write(self, file: IO[bytes], session_id: str, first: int, last: int) -> None:
        archive = LogArchive(file, session_id)
        after = first - 1
        while after < last:
            events = await self._slice(session_id, after)
            if not events:
                raise refuse(Reason.SESSION_NOT_FOUND, f"no session {session_id!r}")
            after = events[-1].position
            taken = [event for event in events if event.position <= last]
            # Apart from the loop: of a log of many events it takes seconds.
            await asyncio.to_thread(archive.add, taken)
        await asyncio.to_thread(archive.end)

    async def _slice(self, session_id: str, after: int) -> list[types_pb2.Event]:
        return await self._driver.patiently(lambda stub: read_exact(stub, session_id, after))


def _info(file: Any) -> types_pb2.BlobInfo:
    file.seek(0)
    digest = hashlib.sha256()
    size = 0
    while data := file.read(1024 * 1024):
        digest.update(data)
        size += len(data)
    return types_pb2.BlobInfo(digest=digest.digest(), size=size, media_type=MEDIA_TYPE)
