"""Frames between a supervisor and its daemon: four bytes of length, big endian, then JSON."""

import contextlib
import json
import os
import selectors
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from hands.inside import tree

_LENGTH = struct.Struct(">I")
_PEER = struct.Struct("3i")
"""Pid, uid and gid of who connected, as SO_PEERCRED tells."""


def is_from_inside(connected: socket.socket) -> bool:
    """Whether code in this hand made the connection, as the kernel knows.

    Who is outside this process's pid namespace has no pid here, which code in the hand cannot
    bring about. Where both are in one, the daemon at least descends from no supervisor.
    """
    peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid = int(_PEER.unpack(peer)[0])
    if pid == 0 or os.getpid() == 1:
        return pid != 0
    # Who connected and ended since may have given the connection to a child.
    return tree.find(pid) is None or pid in {each.pid for each in tree.descendants(os.getpid())}


class Connection:
    """Frames to and from the one daemon."""

    def __init__(
        self,
        connected: socket.socket,
        loop: selectors.BaseSelector,
        obey: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._socket = connected
        self._loop = loop
        self._obey = obey
        self._in = bytearray()
        self._out = bytearray()
        self.open = True
        """Until the daemon, or this end, ends it."""
        connected.setblocking(False)
        loop.register(connected, selectors.EVENT_READ, self._ready)

    def say(self, event: Mapping[str, Any]) -> None:
        """Send, now or when the daemon reads; dropped when it is gone, for it will ask anew."""
        if self.open:
            data = json.dumps(event).encode()
            self._out += _LENGTH.pack(len(data)) + data
            self._flush()

    def say_last(self, event: Mapping[str, Any]) -> None:
        """Send, waiting for the daemon a little if need be; the stream's end is the process's."""
        self.say(event)
        if self.open:
            self._socket.settimeout(1.0)
            with contextlib.suppress(OSError):  # it sees the end of the stream all the same
                self._socket.sendall(self._out)

    def close(self) -> None:
        """Drop the daemon."""
        if self.open:
            self.open = False
            self._loop.unregister(self._socket)
            self._socket.close()

    def _ready(self) -> None:
        self._flush()
        try:
            data = self._socket.recv(256 * 1024) if self.open else b""
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.close()
        self._in += data
        while len(self._in) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._in)
            if len(self._in) < _LENGTH.size + size:
                break
            frame = bytes(self._in[_LENGTH.size : _LENGTH.size + size])
            del self._in[: _LENGTH.size + size]
            self._obey(json.loads(frame))

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except ConnectionError:
            self.close()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._loop.modify(self._socket, wanted, self._ready)
