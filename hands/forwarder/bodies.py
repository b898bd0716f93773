"""Bodies on their way: read as their head said, and framed anew."""

import asyncio
import re

from hands.forwarder.heads import HEAD_MAX, Refused

IDLE_LIMIT = 600.0
"""Seconds in which nothing comes, or nothing is taken, before a connection ends."""
_PIECE = 64 * 1024
_LINE_MAX = 1024
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


class Cut(Exception):
    """A stream ended, or nothing moved on it, before its body was whole."""


class Untaken(Cut):
    """Whom it is for takes no more of it."""


async def head(reader: asyncio.StreamReader) -> bytes | None:
    """A head with the empty line at its end; None when nothing came. Raises Refused, Cut."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(431, f"the head is larger than {HEAD_MAX} bytes") from None
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise Cut("in its head") from None
    except ConnectionError as error:
        raise Cut("in its head") from error


async def piece(reader: asyncio.StreamReader, most: int = _PIECE) -> bytes:
    """What is there next; empty at the end. Raises Cut."""
    try:
        async with asyncio.timeout(IDLE_LIMIT):
            return await reader.read(min(most, _PIECE))
    except TimeoutError:
        raise Cut("nothing came any more") from None
    except ConnectionError:
        return b""


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Pass on, at the pace of who takes it. Raises Cut."""
    try:
        async with asyncio.timeout(IDLE_LIMIT):
            writer.write(data)
            await writer.drain()
    except TimeoutError:
        raise Untaken("nothing was taken any more") from None
    except ConnectionError:
        raise Untaken("nobody takes it") from None


async def sized(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int) -> None:
    """Pass on exactly that many bytes. Raises Cut."""
    while length:
        data = await piece(reader, length)
        if not data:
            raise Cut("in its body")
        length -= len(data)
        await send(writer, data)


async def chunked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on a body in chunks, without what else chunks may carry. Raises Cut, Refused 400."""
    while size := await _size(reader):
        await send(writer, b"%x\r\n" % size)
        await sized(reader, writer, size)
        if await _exactly(reader, 2) != b"\r\n":
            raise Refused(400, "a chunk is longer than it said")
        await send(writer, b"\r\n")
    seen = 0
    while line := await _line(reader):  # trailers, which are dropped
        seen += len(line)
        if seen > HEAD_MAX:
            raise Refused(400, "too many trailers")
    await send(writer, b"0\r\n\r\n")


async def until_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all there is. Raises Cut."""
    while data := await piece(reader):
        await send(writer, data)


async def _size(reader: asyncio.StreamReader) -> int:
    found = _CHUNK.fullmatch(await _line(reader))
    if found is None:
        raise Refused(400, "a chunk has no length")
    return int(found.group(1), 16)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(IDLE_LIMIT):
            line = await reader.readuntil(b"\r\n")
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        raise Cut("in its body") from None
    except asyncio.LimitOverrunError:
        line = b""
    if not 2 <= len(line) <= _LINE_MAX:
        raise Refused(400, "a chunk has no length")
    return line[:-2]


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        async with asyncio.timeout(IDLE_LIMIT):
            return await reader.readexactly(size)
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        raise Cut("in its body") from None
