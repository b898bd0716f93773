"""A person who watches a hand's screen, or has control of it: passes on between it and the daemon.

What shows the screen is the process that runs the hand's calls; it listens in the hand's folder.
Of what that sends only pictures and words are passed on, and the daemon says itself how it ended.
"""

import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hands.inside import tunnel_frames as frames
from hands.inside import wire
from hands.inside.wire import ROOM, Interest, Wire, wait

SOCKET = "screen"
"""In the hand's folder."""
WATCHES, CONTROLS = b"V", b"C"
"""What is said there first."""
_READ = 64 * 1024
_LETTING_GO = 0.8
"""Seconds for the screen's end to let go of what is down, once the person is gone."""
_PASSED = frozenset({frames.DATA, frames.ERROR})


def serve(folder: Path, which: bytes, connected: socket.socket) -> dict[str, Any]:
    """Until either end is done: why, unless it was the person's. Raises Gone."""
    try:
        there = wire.connect(folder, SOCKET)
    except OSError as error:
        return {"problem": f"the hand shows no screen: {(error.strerror or str(error)).lower()}"}
    with there:
        there.sendall(which)
        return _View(there, Wire(connected)).run()


class _View:
    def __init__(self, there: socket.socket, connected: Wire) -> None:
        self._there = there
        self._wire = connected
        self._parser = frames.Parser()
        self._out = bytearray()
        """What the person sent, on its way there."""
        self._person_done = self._told = self._over = False
        self._problem = ""
        there.setblocking(False)

    def run(self) -> dict[str, Any]:
        """Until the screen's end is over."""
        try:
            while not self._over:
                wait(self._interests(), None)
                if self._person_done and not self._out:
                    self._tell()
        except wire.Gone:
            # The next call comes once this process has ended: what is down must be let go of.
            self._tell()
            self._wait_over()
            raise
        self._wire.flush()
        if not self._problem and not self._person_done:
            self._problem = "the hand's screen is there no more"
        return {"problem": self._problem} if self._problem else {}

    def _interests(self) -> Iterator[Interest]:
        self._wire.taking = not self._person_done and len(self._out) < ROOM
        yield self._wire.fileno(), self._wire.wanted(), self._heard
        mask = select.POLLIN if self._wire.room else 0
        mask |= select.POLLOUT if self._out else 0
        if mask:
            yield self._there.fileno(), mask, self._moved

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            with suppress(OSError):
                self._there.shutdown(socket.SHUT_WR)

    def _wait_over(self) -> None:
        ends = time.monotonic() + _LETTING_GO
        with suppress(OSError):
            while (left := ends - time.monotonic()) > 0:
                self._there.settimeout(left)
                if not self._there.recv(_READ):
                    return

    def _heard(self, mask: int) -> None:
        for kind, data in self._wire.ready(mask):
            if kind == frames.DATA:
                self._out += data
            self._person_done |= kind == frames.END

    def _moved(self, mask: int) -> None:
        try:
            if self._out and mask & select.POLLOUT:
                del self._out[: self._there.send(self._out)]
            if mask & ~select.POLLOUT:
                data = self._there.recv(_READ)
                self._over = not data
                for kind, piece in self._parser.feed(data):
                    if kind not in _PASSED:
                        raise ValueError(f"a frame {kind!r}")
                    self._wire.put(frames.framed(kind, piece))
        except BlockingIOError:
            return
        except OSError:
            self._over = True
        except ValueError as error:
            self._problem, self._over = f"what the hand shows is not understood: {error}", True
