"""One client's connection: one request, judged, passed on, and its answer.

One and no more: whoever asks again connects again. So each request is judged by
itself, and what a client sends ahead is never taken for part of another one.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from hands.forwarder import bodies, guard, heads
from hands.forwarder.rules import Asked, Rule, refusal

HEAD_LIMIT = 10.0
"""Seconds for a client's head."""
_ANSWER_LIMIT = 600.0
"""Seconds for a host's answer to begin, once it was asked."""
_INTERIM_MAX = 8
_CLOSE_LIMIT = 1.0
"""Seconds for what was written to leave."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was asked for, and what became of it."""

    asked: Asked
    address: str = ""
    """Where it went; empty when it was refused."""
    why: str = ""
    """Why it was refused."""


@dataclass(frozen=True, slots=True)
class Way:
    """How requests leave; tests have other ways to resolve and to trust."""

    resolve: guard.Resolve
    trust: Callable[[], Awaitable[ssl.SSLContext]] | None = None
    """For https URLs; None for what this machine trusts."""
    head_limit: float = HEAD_LIMIT


Decided = Callable[[Decision], None]


async def serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    rules: Callable[[], Sequence[Rule]],
    way: Way,
    decided: Decided,
) -> None:
    """Serve the one request of a connection, and close it."""
    asked: Asked | None = None
    try:
        asking = await _asking(reader, way.head_limit)
        if asking is None:
            return
        asked = Asked(
            asking.host, asking.port, asking.method, asking.path, overridden=asking.overridden
        )
        upstream = await _upstream(asking, asked, rules(), way, decided)
        try:
            if asking.tunnel:
                await _tunnel(reader, writer, *upstream)
            else:
                await _exchange(asking, reader, writer, *upstream)
        finally:
            await _close(upstream[1])
    except heads.Refused as error:
        await _refuse(writer, error)
    except bodies.Cut:
        writer.transport.abort()  # what is not whole must not look as if it were
    finally:
        await _close(writer)


async def _asking(reader: asyncio.StreamReader, limit: float) -> heads.Request | None:
    try:
        async with asyncio.timeout(limit):
            head = await bodies.head(reader)
    except TimeoutError:
        raise heads.Refused(408, f"no whole request within {limit:g} s") from None
    return None if head is None else heads.request(head)


async def _upstream(
    asking: heads.Request, asked: Asked, rules: Sequence[Rule], way: Way, decided: Decided
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to who was asked for. Raises Refused."""
    try:
        if why := refusal(rules, asked):
            raise heads.Refused(403, why)
        dialled, address = await guard.dial(
            asked.host,
            asked.port,
            lambda address: not refusal(rules, replace(asked, host=address)),
            way.resolve,
        )
    except heads.Refused as error:
        decided(Decision(asked, why=error.why))
        raise
    decided(Decision(asked, address))
    try:
        async with asyncio.timeout(guard.CONNECT_LIMIT):
            context = await (way.trust or _trust)() if asking.tls else None
            return await asyncio.open_connection(
                sock=dialled,
                ssl=context,
                server_hostname=asking.host if context else None,
                limit=heads.HEAD_MAX,
            )
    except (OSError, TimeoutError) as error:  # ssl's errors are OSErrors
        dialled.close()
        why = getattr(error, "verify_message", "") or "no TLS connection"
        raise heads.Refused(502, f"{asking.host} is not trusted: {why}") from None


async def _exchange(
    asking: heads.Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    up_reader: asyncio.StreamReader,
    up_writer: asyncio.StreamWriter,
) -> None:
    """Pass the request on and its answer back; an answer may come before the request is whole."""
    await bodies.send(up_writer, asking.head())
    sending = asyncio.create_task(_request_body(asking, reader, up_writer))
    answering = asyncio.create_task(_answer(asking, up_reader, writer))
    try:
        await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            # A client that is gone or sends what is malformed gets no answer: the host waits for
            # the rest. A host that takes no more may have answered already.
            with suppress(bodies.Untaken):
                sending.result()
        await answering
    finally:
        for task in (sending, answering):
            task.cancel()
        await asyncio.gather(sending, answering, return_exceptions=True)


async def _request_body(
    asking: heads.Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    if asking.length is None:
        await bodies.chunked(reader, writer)
    else:
        await bodies.sized(reader, writer, asking.length)


async def _answer(
    asking: heads.Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    for _ in range(_INTERIM_MAX):
        response = await _response(asking, reader)
        if not response.interim or asking.version == "HTTP/1.1":
            await bodies.send(writer, response.head(asking.version))
        if not response.interim:
            break
    else:
        raise heads.Refused(502, f"{asking.host} answers again and again")
    try:
        if response.chunked:
            await bodies.chunked(reader, writer)
        elif response.length is not None:
            await bodies.sized(reader, writer, response.length)
        else:
            await bodies.until_end(reader, writer)
    except heads.Refused as error:
        raise bodies.Cut(error.why) from None  # its head was passed on already


async def _response(asking: heads.Request, reader: asyncio.StreamReader) -> heads.Response:
    try:
        async with asyncio.timeout(_ANSWER_LIMIT):
            head = await bodies.head(reader)
    except TimeoutError:
        raise heads.Refused(504, f"{asking.host} did not answer") from None
    except (bodies.Cut, heads.Refused):
        head = None
    if head is None:
        raise heads.Refused(502, f"{asking.host} ended without an answer that is understood")
    return heads.response(head, asking.method)


async def _tunnel(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    up_reader: asyncio.StreamReader,
    up_writer: asyncio.StreamWriter,
) -> None:
    """Pass bytes both ways until both ends are done, or one is gone."""
    await bodies.send(writer, b"HTTP/1.1 200 Connected\r\n\r\n")
    ways = [
        asyncio.create_task(_one_way(reader, up_writer)),
        asyncio.create_task(_one_way(up_reader, writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        for way in ways:
            if way.done():
                way.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await bodies.until_end(reader, writer)
    if writer.can_write_eof():
        with suppress(OSError):  # it is gone: the other way says so
            writer.write_eof()


async def _refuse(writer: asyncio.StreamWriter, error: heads.Refused) -> None:
    with suppress(bodies.Cut):  # nobody is there to be told
        await bodies.send(writer, heads.answer(error.status, error.why))


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        async with asyncio.timeout(_CLOSE_LIMIT):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


async def _trust() -> ssl.SSLContext:
    return await asyncio.to_thread(_system)


@cache
def _system() -> ssl.SSLContext:
    return ssl.create_default_context()
