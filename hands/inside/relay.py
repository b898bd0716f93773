"""A hand's way out, from inside: bytes between a loopback port and the daemon's forwarder.

Programs know proxies by host and port, not by a unix socket. This passes on
what they send and decides nothing: the forwarder does, outside, where the hand
has no say. It is a child of the supervisor, which starts it again when it ends.
"""

import contextlib
import os
import selectors
import socket
import time
from pathlib import Path

from hands.inside import runner

PORT = 3128
SOCKET = "egress"
"""The forwarder's, in the hand's folder."""
_BUFFER = 64 * 1024
_CONNECTIONS = 128
_REST = 1.0
"""Seconds between two starts of the relay: one that is killed again and again costs little."""
_LINGER = 2.0
"""Seconds for a program to take its answer, once the forwarder is done."""
_CONNECT_LIMIT = 10.0
"""Seconds for a forwarder that has no room at once to take a connection."""
_AGAIN = 0.02
"""Seconds before it is tried again."""
_AWAY = b"carpal: the daemon is away, and with it the way out; try again in a moment\n"
_NOBODY = (
    b"HTTP/1.1 503 The daemon is away, try again in a moment\r\n"
    b"Content-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
) % (len(_AWAY), _AWAY)


def listen(port: int = PORT) -> socket.socket:
    """Listen on the hand's loopback. Raises OSError, above all where the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class Relaying:
    """The relay's process, as the supervisor has it: started again, at most once a second."""

    def __init__(self, children: runner.Children, listener: socket.socket, folder: Path) -> None:
        self._children = children
        self._listener = listener
        self._folder = folder
        self._pid = 0
        self._started = float("-inf")

    def due(self) -> float:
        """When `tick` has something to do, on the monotonic clock."""
        return float("inf") if self._pid else self._started + _REST

    def tick(self, now: float) -> None:
        """Start it if it does not run."""
        if self._pid and self._children.ended(self._pid) is not None:
            self._pid = 0
        if now < self.due():
            return
        self._started = now
        with contextlib.suppress(OSError):  # no room for a process now; later
            started = self._children.fork(self._body, self._listener.fileno())
            os.close(started.report)  # it has nothing to say
            self._pid = started.pid

    def _body(self, _report: object) -> None:
        Relay(self._listener, self._folder).run()


class Relay:
    """Every connection that there is, in one loop."""

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._listener = listener
        self._folder = folder
        self._loop = selectors.DefaultSelector()
        self._pairs: set[_Pair] = set()

    def run(self) -> None:
        """For ever."""
        os.chdir(self._folder)  # a socket's address holds 107 bytes; this one is short
        while True:
            self._listen()
            pause = min((pair.due() for pair in self._pairs), default=float("inf"))
            wait = None if pause == float("inf") else max(0.0, pause - time.monotonic())
            for key, mask in self._loop.select(wait):
                if key.data is None:
                    self._accept()
                else:
                    pair, end = key.data
                    if end in self._loop.get_map():
                        pair.ready(end, mask)
            now = time.monotonic()
            for pair in [pair for pair in self._pairs if pair.tick(now)]:
                self._pairs.discard(pair)

    def _listen(self) -> None:
        listening = self._listener in self._loop.get_map()
        if len(self._pairs) < _CONNECTIONS and not listening:
            self._loop.register(self._listener, selectors.EVENT_READ)
        elif len(self._pairs) >= _CONNECTIONS and listening:
            self._loop.unregister(self._listener)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            time.sleep(_AGAIN)  # gone again, or no descriptor left
            return
        accepted.setblocking(False)
        self._pairs.add(_Pair(self._loop, accepted))


class _Pair:
    """A program's connection, and the one to the forwarder once there is one."""

    def __init__(self, loop: selectors.BaseSelector, program: socket.socket) -> None:
        self._loop = loop
        self._program = program
        self._forwarder: socket.socket | None = None
        self._out = _Way()
        self._back = _Way()
        self._connect_by = time.monotonic() + _CONNECT_LIMIT
        self._connect_at = 0.0
        self._end_at = float("inf")

    def due(self) -> float:
        """When `tick` has something to do."""
        return min(self._connect_at, self._end_at)

    def tick(self, now: float) -> bool:
        """Do what is due; whether it is over."""
        if now >= self._connect_at:
            self._connect(now)
        if self._back.done and self._end_at == float("inf"):
            # A close while something is unread would take the answer away from the program.
            self._end_at = now + _LINGER
        over = now >= self._end_at or (self._out.ended and self._back.done)
        for end in (self._program, self._forwarder):
            if end is not None:
                self._watch(end, over)
                if over:
                    end.close()
        return over

    def ready(self, end: socket.socket, mask: int) -> None:
        """Take what came at one end, and give it what it takes."""
        here, there = (self._out, self._back) if end is self._program else (self._back, self._out)
        if mask & selectors.EVENT_READ:
            here.take(end)
        if mask & selectors.EVENT_WRITE:
            there.give(end)

    def _connect(self, now: float) -> None:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.setblocking(False)
        try:
            connecting.connect(SOCKET)
        except BlockingIOError:  # it has no room just now
            connecting.close()
            self._connect_at = now + _AGAIN
            if now < self._connect_by:
                return
            self._nobody()
        except OSError:
            connecting.close()
            self._nobody()
        else:
            self._forwarder = connecting
        self._connect_at = float("inf")

    def _nobody(self) -> None:
        self._back.buffer += _NOBODY
        self._back.ended = True
        self._out.discards = True

    def _watch(self, end: socket.socket, over: bool) -> None:
        here, there = (self._out, self._back) if end is self._program else (self._back, self._out)
        wanted = 0
        if not over:
            wanted |= selectors.EVENT_READ if here.wants else 0
            wanted |= selectors.EVENT_WRITE if there.pending else 0
        known = end in self._loop.get_map()
        if wanted and known:
            self._loop.modify(end, wanted, (self, end))
        elif wanted:
            self._loop.register(end, wanted, (self, end))
        elif known:
            self._loop.unregister(end)


class _Way:
    """One direction: what came and was not given yet."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.ended = False
        """Nothing more comes."""
        self.discards = False
        """Nobody takes it any more."""
        self.done = False
        """All was given, and the end of it told."""

    @property
    def wants(self) -> bool:
        """There is room for more."""
        return not self.ended and len(self.buffer) < _BUFFER

    @property
    def pending(self) -> bool:
        """There is something to give, if only the end."""
        return not self.done and not self.discards and (bool(self.buffer) or self.ended)

    def take(self, source: socket.socket) -> None:
        try:
            data = source.recv(_BUFFER)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.ended = True
            self.done = self.done or self.discards
        elif not self.discards:
            self.buffer += data

    def give(self, target: socket.socket) -> None:
        try:
            while self.buffer:
                del self.buffer[: target.send(self.buffer)]
            if self.ended:
                self.done = True
                target.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.buffer.clear()
            self.discards = self.done = True
