"""A request on its way out: its body is paced and counted, and what fails is given a name."""

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import httpcore2

from vault.guard.errors import (
    BadRequest,
    BodyTooLarge,
    Cut,
    GuardError,
    Malformed,
    NotConnected,
    TimedOut,
)
from vault.guard.limits import Limits

_ENDED = ("peer closed", "Server disconnected")
"""How the library's errors begin that say that the other side went, not that it spoke wrongly."""


class Sending:
    """How far a request is, and how long that may still take."""

    def __init__(self, limits: Limits, deadline: float) -> None:
        self._limits = limits
        self._deadline = deadline
        self._at = "connect"
        self._timer: asyncio.Timeout | None = None

    def timer(self) -> asyncio.Timeout:
        """To be held around all of it until the reply's head is there."""
        self._timer = asyncio.timeout_at(self._until(self._limits.connect))
        return self._timer

    async def traced(self, event: str, info: dict[str, Any]) -> None:
        """Told by the library what it does: from here on the other side may have something."""
        if event == "http11.send_request_headers.started":
            self._step("send", self._limits.idle)

    async def body(self, source: AsyncIterable[bytes], length: int | None) -> AsyncIterator[bytes]:
        """The body, part by part, no more of it than is allowed."""
        allowed = self._limits.request_bytes if length is None else length
        given = 0
        self._step("send", self._limits.idle)
        async for part in source:
            given += len(part)
            if given > allowed:
                raise BodyTooLarge(limit="request_bytes", allowed=allowed)
            yield part
            self._step("send", self._limits.idle)  # the part before is written
        if length is not None and given < length:
            raise BodyTooLarge(limit="length", allowed=length)
        self._step("first_byte", self._limits.first_byte)

    def late(self) -> GuardError:
        """What it is when the timer ran out."""
        if self._at == "connect":
            return NotConnected(limit="connect")
        total = asyncio.get_running_loop().time() >= self._deadline
        return TimedOut(limit="total" if total else self._at)

    def failed(self, error: Exception) -> GuardError:
        """What it is when the library fails."""
        if self._at == "connect" and not isinstance(error, httpcore2.LocalProtocolError):
            return NotConnected(problem=type(error).__name__)
        return failure(error)

    def _step(self, at: str, seconds: float) -> None:
        self._at = at
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(self._until(seconds))

    def _until(self, seconds: float) -> float:
        return min(self._deadline, asyncio.get_running_loop().time() + seconds)


ERRORS = (
    httpcore2.ProtocolError,
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    ssl.SSLError,  # what is wrong with TLS after its handshake comes through as it is
)
"""What the library raises. Their texts may have parts of what the other side sent."""


def failure(error: Exception) -> GuardError:
    """An error of the library's once something was sent; of its text nothing is kept."""
    if isinstance(error, httpcore2.LocalProtocolError):
        return BadRequest(part="protocol")
    if isinstance(error, httpcore2.RemoteProtocolError):
        return Cut() if str(error).startswith(_ENDED) else Malformed(part="http")
    if isinstance(error, httpcore2.TimeoutException):
        return TimedOut(limit=type(error).__name__)
    return Cut(problem=type(error).__name__)
