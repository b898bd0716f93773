"""The daemon's local socket: its user, and root, are told how it stands, in one JSON line.

For people, scripts and supervisors on the machine, with or without a link. It takes no orders.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

log = logging.getLogger(__name__)

_NAME = "socket"
_LIMIT = 5.0
"""Seconds for the daemon to answer, and for who asked to take it."""
_MOST = 64 * 1024
"""Bytes of an answer; it has a few hundred."""

Tell = Callable[[], Mapping[str, object]]


@asynccontextmanager
async def answering(folder: Path, tell: Tell) -> AsyncIterator[None]:
    """Tell everyone who connects what `tell` gives, while the block lasts.

    The caller holds `folder` as its only daemon. Where there can be no socket nobody is told, and
    the log says why.
    """

    async def answer(writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(json.dumps(dict(tell())).encode() + b"\n")
            async with asyncio.timeout(_LIMIT):
                await writer.drain()
        except (ConnectionError, TimeoutError):
            return  # who asked went away
        finally:
            writer.close()

    answers: set[asyncio.Task[None]] = set()

    def asked(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(answer(writer))
        answers.add(task)
        task.add_done_callback(answers.discard)

    path = folder / _NAME
    try:
        listener = _bound(folder, path)
    except OSError as error:  # its hands and its link do without
        log.warning("no local socket", extra={"socket": str(path), "why": str(error)})
        yield
        return
    server = await asyncio.start_unix_server(asked, sock=listener)
    try:
        yield
    finally:
        server.close()
        for task in answers:
            task.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        path.unlink(missing_ok=True)


def _bound(folder: Path, path: Path) -> socket.socket:
    """The socket `path`, for its owner alone. Raises OSError, as on a disk that holds none."""
    path.unlink(missing_ok=True)  # of a daemon that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as address:
            listener.bind(address)
        path.chmod(0o600)
    except BaseException:
        listener.close()
        raise
    return listener


def ask(folder: Path) -> dict[str, Any]:
    """How the daemon stands whose files are in `folder`. UNREACHABLE when none answers."""
    try:
        with (
            _short(folder) as address,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking,
        ):
            asking.settimeout(_LIMIT)
            asking.connect(address)
            answer = b""
            while len(answer) < _MOST and (data := asking.recv(_MOST)):
                answer += data
        told: dict[str, Any] = json.loads(answer)
    except (FileNotFoundError, ConnectionRefusedError):
        raise _silent(
            f"no daemon runs on {folder}", "start it with `carpal hand run`, or give --state-dir"
        ) from None
    except TimeoutError:
        raise _silent(
            f"the daemon of {folder} does not answer within {_LIMIT:g} s",
            "see whether it stands still, in its log or with `ps`",
        ) from None
    except ValueError:
        raise _silent(f"the daemon of {folder} ended meanwhile", "ask again") from None
    except OSError as error:
        raise _silent(
            f"the daemon of {folder} cannot be asked: {error.strerror}", "ask as its user, or root"
        ) from None
    return told


def _silent(problem: str, action: str) -> CarpalError:
    return refuse(Reason.UNREACHABLE, problem, action=action)


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A socket's address holds 107 bytes; through a descriptor any path is short."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{_NAME}"
    finally:
        os.close(handle)
