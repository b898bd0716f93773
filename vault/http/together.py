"""A transport whose writes of one turn of the loop go out as one.

An answer's head and its body come as two writes, and each would be a record of TLS, a call of the
kernel, and a turn of whoever reads it.
"""

import asyncio
from typing import Any

HELD_MAX = 16 * 1024
"""Bytes that wait for the turn's end; more go at once, so that whoever writes feels a slow peer."""


class Together:
    """Around a transport; what is not said here is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """At the end of this turn, if not sooner."""
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)
        self._size += len(data)
        if self._size > HELD_MAX:
            self._send()

    def close(self) -> None:
        """Once all is sent."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """At once: what was not sent is not."""
        self._held, self._size = [], 0
        self._transport.abort()

    def _send(self) -> None:
        if self._held:
            held, self._held, self._size = self._held, [], 0
            self._transport.write(b"".join(held))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
