"""The daemon's local socket: HTTP for people, scripts and supervisors on the machine.

With or without a link. It is for the daemon's own user and root: its mode says so, and each
connection is asked whose it is. What comes is bounded in size, time and number, so that nobody
who may open it holds up the daemon.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from carpal.errors import refuse
from carpal.status import Reason
from hands.local.http import HEAD_MAX, Answer, Malformed, Routes, answer, read

log = logging.getLogger(__name__)

NAME = "socket"
"""Of the socket, in the daemon's folder."""
LIMIT = 5.0
"""Seconds for a request to come, for its answer, and for that to be taken, each."""
_AT_ONCE = 32
"""Connections that are served; one more is closed at once."""
_PEER = struct.Struct("3i")
"""`struct ucred`: pid, uid, gid."""


@asynccontextmanager
async def answering(folder: Path, routes: Routes) -> AsyncIterator[None]:
    """Answer by `routes` while the block lasts; they may change meanwhile.

    The caller holds `folder` as its only daemon. Where there can be no socket nobody is told, and
    the log says why.
    """
    serving: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(serving) >= _AT_ONCE:
            writer.transport.abort()
            return
        task = asyncio.create_task(_serve(reader, writer, routes))
        serving.add(task)
        task.add_done_callback(serving.discard)

    path = folder / NAME
    try:
        listener = _bound(folder, path)
    except OSError as error:  # its hands and its link do without
        log.warning("no local socket", extra={"socket": str(path), "why": str(error)})
        yield
        return
    # The limit of a stream is that of a head; a body is read beyond it.
    server = await asyncio.start_unix_server(connected, sock=listener, limit=HEAD_MAX)
    try:
        yield
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        path.unlink(missing_ok=True)


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: Routes
) -> None:
    try:
        said, body = await _said(reader, writer, routes)
        writer.write(said.encoded(body=body))
        async with asyncio.timeout(LIMIT):
            await writer.drain()
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        writer.transport.abort()  # who asked went away, or does not read
    finally:
        writer.close()


async def _said(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: Routes
) -> tuple[Answer, bool]:
    """What is answered, and whether with its body."""
    try:
        async with asyncio.timeout(LIMIT):
            request = await read(reader)
    except Malformed as error:
        return _refused(error.status, str(error)), True
    except TimeoutError:
        return _refused(408, f"no whole request came within {LIMIT:g} s"), True
    if not _may_ask(writer):
        return _refused(403, "only the daemon's own user and root may ask"), True
    try:
        async with asyncio.timeout(LIMIT):
            return await answer(request, routes), request.method != "HEAD"
    except TimeoutError:
        return _refused(503, f"there is no answer within {LIMIT:g} s"), True
    except Exception:  # a fault of ours in a route must not end the daemon
        log.exception("local request failed", extra={"path": request.path})
        return _refused(500, "that failed; the daemon's log says why"), True


def _refused(status: int, why: str) -> Answer:
    return Answer.refusal(
        refuse(Reason.INVALID_FIELD, why, action="correct the request"), status=status
    )


def _may_ask(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end, as it connected, was root or the daemon's own user."""
    peer = writer.get_extra_info("socket")
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(raw)
    return uid in (0, os.geteuid())


def _bound(folder: Path, path: Path) -> socket.socket:
    """The socket `path`, for its owner alone. Raises OSError, as on a disk that holds none."""
    path.unlink(missing_ok=True)  # of a daemon that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short(folder) as address:
            listener.bind(address)
        path.chmod(0o600)
    except BaseException:
        listener.close()
        raise
    return listener


@contextmanager
def reachable_at(path: Path, folder: Path) -> Iterator[None]:
    """A short way to a folder's socket, for people and scripts, while the block lasts."""
    try:
        path.unlink(missing_ok=True)
        path.symlink_to(folder / NAME)
    except OSError as error:
        log.warning("no way to the local socket", extra={"path": str(path), "why": str(error)})
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def short(folder: Path) -> Iterator[str]:
    """The address of a folder's socket. It holds 107 bytes; by a descriptor any path is short."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{NAME}"
    finally:
        os.close(handle)
