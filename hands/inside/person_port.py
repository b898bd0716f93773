"""One connection to a port of the hand's own loopback, either end of which may be done first."""

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hands.inside import tunnel_frames as frames
from hands.inside.wire import ROOM, Interest, Wire, wait

_READ = 64 * 1024
_CONNECT_LIMIT = 10.0


def serve(port: int, connected: socket.socket) -> dict[str, Any]:
    """Until both ends are done: nothing to say, or why there is no connection. Raises Gone."""
    try:
        there = socket.create_connection(("127.0.0.1", port), _CONNECT_LIMIT)
    except OSError as first:
        try:
            there = socket.create_connection(("::1", port), _CONNECT_LIMIT)
        except OSError:
            why = (first.strerror or str(first)).lower()
            return {"problem": f"nothing answers at port {port} in the hand: {why}"}
    with there:
        return _Port(there, Wire(connected)).run()


class _Port:
    def __init__(self, there: socket.socket, wire: Wire) -> None:
        self._there = there
        self._wire = wire
        self._out = bytearray()
        """What the person's end sent, on its way there."""
        self._person_done = self._told = self._there_done = False
        self._broken = ""
        there.setblocking(False)

    def run(self) -> dict[str, Any]:
        """Until both ends are done."""
        while not self._broken and not (self._there_done and self._told):
            wait(self._interests(), None)
            if self._person_done and not self._out and not self._told:
                self._told = True
                with suppress(OSError):
                    self._there.shutdown(socket.SHUT_WR)
        self._wire.flush()
        return {"problem": self._broken} if self._broken else {}

    def _interests(self) -> Iterator[Interest]:
        self._wire.taking = not self._person_done and len(self._out) < ROOM
        yield self._wire.fileno(), self._wire.wanted(), self._heard
        mask = select.POLLIN if self._wire.room and not self._there_done else 0
        mask |= select.POLLOUT if self._out else 0
        if mask:
            yield self._there.fileno(), mask, self._moved

    def _heard(self, mask: int) -> None:
        for kind, data in self._wire.ready(mask):
            if kind == frames.DATA:
                self._out += data
            self._person_done |= kind == frames.END

    def _moved(self, mask: int) -> None:
        try:
            if self._out and mask & select.POLLOUT:
                del self._out[: self._there.send(self._out)]
            if not self._there_done and mask & ~select.POLLOUT:
                data = self._there.recv(_READ)
                self._there_done = not data
                self._wire.put(frames.framed(frames.DATA if data else frames.END, data))
        except BlockingIOError:
            return
        except OSError as error:
            self._broken = (error.strerror or str(error)).lower()
