"""Bytes between the daemon and a tool that runs in the hand, over a unix socket of the daemon's.

Frames: four bytes of length, big endian, then the data; an empty one is the
end. So a stream that was cut is never taken for one that is whole.
"""

import os
import socket
import struct
from pathlib import Path

from hands.inside.beneath import ToolError

FRAME_MAX = 256 * 1024
PATIENCE = 120.0
"""Seconds in which nothing moves before a tool gives up: the daemon may wait for its link."""
_LENGTH = struct.Struct(">I")


class Passage:
    """The hand's end; a file to read from, and to write to."""

    def __init__(self, folder: Path, name: str) -> None:
        """Connect to the socket `name` in the hand's folder. Raises ToolError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE)
        self._left = 0
        self._ended = False
        self.read_bytes = 0
        # A socket's address holds 107 bytes; through a descriptor any path is short.
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.connect(f"/proc/self/fd/{handle}/{name}")
        except OSError as error:
            raise ToolError(f"the daemon does not take the connection: {error}") from None
        finally:
            os.close(handle)

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, fewer only at the end. Raises ToolError when it is cut."""
        parts: list[bytes] = []
        while size and not self._ended:
            if not self._left:
                (self._left,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
                self._ended = not self._left
                continue
            data = self._some(min(size, self._left))
            self._left -= len(data)
            size -= len(data)
            self.read_bytes += len(data)
            parts.append(data)
        return b"".join(parts)

    def write(self, data: bytes) -> int:
        """Send it. Raises ToolError."""
        view = memoryview(data)
        for begin in range(0, len(view), FRAME_MAX):
            piece = view[begin : begin + FRAME_MAX]
            self._send(_LENGTH.pack(len(piece)) + piece)
        return len(data)

    def end(self) -> None:
        """All was written; waits until the daemon has it. Raises ToolError."""
        self._send(_LENGTH.pack(0))
        self._exactly(1)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ToolError(f"the daemon does not take it: {error}") from None

    def _some(self, size: int) -> bytes:
        try:
            data = self._socket.recv(min(size, FRAME_MAX))
        except OSError as error:
            raise ToolError(f"the daemon sends no more: {error}") from None
        if not data:
            raise ToolError("what the daemon sent was cut")
        return data

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._some(size - len(data))
        return data
