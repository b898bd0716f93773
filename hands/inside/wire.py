"""A tunnel's process in a hand, and its one connection to the daemon.

Nothing is read that there is no room for, in either direction: so a reader
that stands still stops who writes, and the kernel's buffers are all that fills.
"""

import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from hands.inside import tunnel_frames as frames
from hands.inside.beneath import ToolError

ROOM = 256 * 1024
"""Bytes that may wait in one direction before no more is read for it."""
_READ = 64 * 1024


class Gone(Exception):
    """The daemon ended the connection: the tunnel is over."""


def connect(folder: Path, name: str) -> socket.socket:
    """To the socket `name` in the hand's folder. Raises OSError."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A socket's address holds 107 bytes; through a descriptor any path is short.
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connecting.connect(f"/proc/self/fd/{handle}/{name}")
    finally:
        os.close(handle)
    return connecting


class Wire:
    """Frames to and from the daemon, without waiting."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._parser = frames.Parser()
        self._out = bytearray()
        self.taking = True
        """There is room for what the person sends; while there is none, nothing is read."""
        connected.setblocking(False)

    @property
    def room(self) -> bool:
        """There is room for more to send."""
        return len(self._out) < ROOM

    def put(self, data: bytes) -> None:
        """Frames to send."""
        self._out += data

    def fileno(self) -> int:
        """For `poll`."""
        return self._socket.fileno()

    def wanted(self) -> int:
        """What to wait for."""
        return (select.POLLIN if self.taking else 0) | (select.POLLOUT if self._out else 0)

    def ready(self, mask: int) -> list[tuple[bytes, bytes]]:
        """Send what can be sent; the frames that came. Raises Gone."""
        try:
            if self._out and mask & select.POLLOUT:
                del self._out[: self._socket.send(self._out)]
            data = self._socket.recv(_READ) if mask & select.POLLIN else None
            if data == b"" or (data is None and mask & (select.POLLHUP | select.POLLERR)):
                raise Gone
            return self._parser.feed(data or b"")
        except BlockingIOError:
            return []
        except (OSError, ValueError):
            raise Gone from None

    def flush(self) -> None:
        """Send what is left, waiting for the daemon. Raises Gone."""
        self._socket.setblocking(True)
        try:
            self._socket.sendall(self._out)
        except OSError:
            raise Gone from None
        self._out.clear()


Interest = tuple[int, int, Callable[[int], None]]
"""A descriptor, what to wait for at it, and what to do then."""


def wait(interests: Iterator[Interest], seconds: float | None) -> bool:
    """Wait for any of them, and do what is to be done; False when the time is over."""
    polled = select.poll()
    then: dict[int, Callable[[int], None]] = {}
    for handle, mask, do in interests:
        polled.register(handle, mask)
        then[handle] = do
    ready = polled.poll(None if seconds is None else max(0, round(seconds * 1000)))
    for handle, mask in ready:
        then[handle](mask)
    return bool(ready)


class Passing:
    """The connection as a file, for what reads and writes a tar: it waits."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._parser = frames.Parser()
        self._came = bytearray()
        self._ended = False

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, fewer only at the end. ToolError when it is cut."""
        while len(self._came) < size and not self._ended:
            try:
                data = self._socket.recv(_READ)
                whole = self._parser.feed(data)
            except (OSError, ValueError) as error:
                raise ToolError(f"what was sent is not understood: {error}") from None
            if not data:
                raise ToolError("what was sent was cut")
            for kind, piece in whole:
                self._came += piece if kind == frames.DATA else b""
                self._ended |= kind == frames.END
        piece = bytes(self._came[:size])
        del self._came[:size]
        return piece

    def write(self, data: bytes) -> int:
        """Send it. Raises ToolError."""
        try:
            self._socket.sendall(frames.framed(frames.DATA, data))
        except OSError as error:
            raise ToolError(f"nobody takes it: {error}") from None
        return len(data)
