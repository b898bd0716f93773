"""A supervisor's socket, and the file it leaves: bytes of a folder where the hand's code writes.

What is said is checked by `said`; here it is only kept from being what it is not.
"""

import asyncio
import json
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Any

from hands.builtin import said
from hands.contract import HandLost, Result

_LEFT = "results"
"""As the supervisor calls it; it is no module to import from here."""
_LEFT_MAX = 8 * 1024 * 1024
"""Bytes of it. A hand runs one call at a time, and its result is taken at once: there are one or
two, whose text of 256 KiB is six times that as JSON at worst, with a thousand changed files."""
_LENGTH = struct.Struct(">I")
_PEER = struct.Struct("3i")
"""Pid, uid and gid of who listens, as SO_PEERCRED tells."""


class NoSocket(HandLost):
    """Something else is in the socket's place: no supervisor put it there, so the hand did."""


def connected(folder: Path) -> tuple[socket.socket, int]:
    """A connection to who listens in `folder`, and their pid by the kernel's word.

    Raises OSError, and NoSocket: a symlink there would lead to another hand's supervisor, say.
    """
    handle = _opened(folder)
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Before the connect: to a supervisor that accepts no more, it would wait for ever.
    connecting.setblocking(False)
    try:
        # The very thing that was looked at. And a socket's address holds 107 bytes: this is short.
        connecting.connect(f"/proc/self/fd/{handle}")
        peer = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    except OSError:
        connecting.close()
        raise
    finally:
        os.close(handle)
    return connecting, _PEER.unpack(peer)[0]


def _opened(folder: Path) -> int:
    """The socket in a hand's folder, as it lies there."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    inside = os.open(folder, flags | os.O_DIRECTORY)
    try:
        handle = os.open("socket", flags, dir_fd=inside)
    finally:
        os.close(inside)
    if not stat.S_ISSOCK(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoSocket("what is in its socket's place is none")
    return handle


def framed(message: dict[str, Any]) -> bytes:
    """A message to a supervisor, as it goes."""
    data = json.dumps(message).encode()
    return _LENGTH.pack(len(data)) + data


async def frame(reader: asyncio.StreamReader, most: int = said.FRAME_MAX) -> dict[str, Any]:
    """The next object it says. ValueError for what is none; IncompleteReadError at the end."""
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > most:
        raise ValueError(f"a frame of {size} bytes")
    return said.frame(await reader.readexactly(size))


def results_left(folder: Path) -> dict[str, Result]:
    """What a supervisor that ended by itself wrote down, by call; whatever is there is no error."""
    try:
        events = said.parsed(_regular(folder / _LEFT))
        steps = {str(event["call_id"]): said.step(event) for event in events}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {call_id: step for call_id, step in steps.items() if isinstance(step, Result)}


def _regular(path: Path) -> bytes:
    """A file of ours; OSError for what a command may have put in its place, a pipe above all."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is no file")
        content = file.read(_LEFT_MAX + 1)
    if len(content) > _LEFT_MAX:
        raise OSError(f"{path} is no file of ours")
    return content
