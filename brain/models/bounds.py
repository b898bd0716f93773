"""What a service may send, bounded before anything is kept of it.

The package joins the lines of an event piece by piece, each time copying all
it has, and keeps an error's body whole. So it is given whole events alone, of
a bounded size and number of lines, and the beginning of an error's body.
Nothing is unpacked: a reply is asked for as it is, and any other is refused.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import cast

import httpx2

from brain.models.reading import Unreadable

EVENT_BYTES = 4 * 1024 * 1024
"""Of one event on the wire: a block of the largest size, with every letter escaped."""
EVENT_LINES = 100
"""Of one server-sent event; the service sends two."""
STREAM_BYTES = 64 * 1024 * 1024
"""Of a reply on the wire: some hundred bytes around each word of the longest."""
ERROR_BYTES = 64 * 1024
"""Of an error's body; what is beyond is not read."""
_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_END = re.compile(b"|".join(_ENDS))
_LENGTH = 4
"""Bytes at the beginning of a message of AWS's event streams that say how long it is."""
_SMALLEST = 16
"""Bytes of such a message that holds nothing."""


class _Events:
    """Server-sent events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._lines = 0

    def whole(self, piece: bytes) -> bytes:
        """What ended with the next piece. Raises Unreadable."""
        before = max(len(self._rest) - 3, 0)
        self._rest += piece
        self._lines += _lines(piece)
        found = ((self._rest.rfind(end, before), len(end)) for end in _ENDS)
        to = max((at + size for at, size in found if at >= 0), default=0)
        ready = bytes(self._rest[:to])
        if ready:
            del self._rest[:to]
            self._lines = _lines(self._rest)
            for event in _END.split(ready):
                _check_event(len(event), _lines(event))
        _check_event(len(self._rest), self._lines)
        return ready

    def last(self) -> bytes:
        """What the stream ended with."""
        return bytes(self._rest)


class _Messages:
    """AWS's event streams: each message says its length first."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def whole(self, piece: bytes) -> bytes:
        """What ended with the next piece. Raises Unreadable."""
        self._rest += piece
        to = 0
        while len(self._rest) - to >= _LENGTH:
            size = int.from_bytes(self._rest[to : to + _LENGTH])
            _check_event(size)
            if size < _SMALLEST:
                raise Unreadable(f"a message of the stream says that it has {size} bytes")
            if to + size > len(self._rest):
                break
            to += size
        ready = bytes(self._rest[:to])
        del self._rest[:to]
        return ready

    def last(self) -> bytes:
        """What the stream ended with."""
        return bytes(self._rest)


class _Bounded(httpx2.AsyncByteStream):
    """The body of a reply: whole events, as they come. Raises Unreadable."""

    def __init__(self, body: httpx2.AsyncByteStream, parts: _Events | _Messages) -> None:
        self._body = body
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in _up_to(self._body, STREAM_BYTES):
            if ready := self._parts.whole(piece):
                yield ready
        if last := self._parts.last():
            yield last

    async def aclose(self) -> None:
        """See httpx2."""
        await self._body.aclose()


class _Beginning(httpx2.AsyncByteStream):
    """The body of an error, as far as anybody reads it."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ERROR_BYTES
        async for piece in self._body:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return

    async def aclose(self) -> None:
        """See httpx2."""
        await self._body.aclose()


def bound(response: httpx2.Response, *, aws: bool) -> None:
    """Bound the body of an answer whose headers came. Raises Unreadable.

    `aws`: replies come in messages of AWS's event streams.
    """
    body = cast("httpx2.AsyncByteStream", response.stream)
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if response.status_code != 200:
        # The status alone says most of it.
        response.headers.pop("content-encoding", None)
        response.stream = _Beginning(body) if packed == "identity" else _Nothing(body)
    elif packed != "identity":
        raise Unreadable(f"the reply came packed ({packed[:40]}), which was not asked for")
    else:
        response.stream = _Bounded(body, _Messages() if aws else _Events())


class _Nothing(_Beginning):
    """The body of an error that cannot be read."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in (b"its answer came packed, which was not asked for",):
            yield piece


async def _up_to(body: AsyncIterable[bytes], most: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in body:
        size += len(piece)
        if size > most:
            raise Unreadable(f"the reply is larger than {most} bytes")
        yield piece


def _lines(part: bytes | bytearray) -> int:
    return max(part.count(b"\n"), part.count(b"\r"))


def _check_event(size: int, lines: int = 0) -> None:
    if size > EVENT_BYTES:
        raise Unreadable(
            f"the reply is larger than it may be: an event has more than {EVENT_BYTES} bytes"
        )
    if lines > EVENT_LINES:
        raise Unreadable(f"an event of the reply has more than {EVENT_LINES} lines")
