"""The daemon's local socket: whoever may enter its folder is told how it stands, in one JSON line.

For people, scripts and supervisors on the machine, with or without a link. It takes no orders.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

_NAME = "socket"
_LIMIT = 5.0
"""Seconds for the daemon to answer, and for who asked to take it."""
_MOST = 64 * 1024
"""Bytes of an answer; it has a few hundred."""

Tell = Callable[[], Mapping[str, object]]


@asynccontextmanager
async def answering(folder: Path, tell: Tell) -> AsyncIterator[None]:
    """Tell everyone who connects what `tell` gives, while the block lasts.

    The caller holds `folder` as its only daemon.
    """

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(json.dumps(dict(tell())).encode() + b"\n")
            async with asyncio.timeout(_LIMIT):
                await writer.drain()
        except (ConnectionError, TimeoutError):
            return  # who asked went away
        finally:
            writer.close()

    path = folder / _NAME
    path.unlink(missing_ok=True)  # of a daemon that was killed
    with _short(folder) as address:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(address)
    path.chmod(0o600)
    server = await asyncio.start_unix_server(answer, sock=listener)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


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
