"""A server that gives a secret back gives the caller a mark, whichever way it does it (V28)."""

import asyncio
import gzip
import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.pace import AT_ONCE
from tests.vault.guard.upstream import HOST, Asked, Upstream, guarded, reply, says
from vault.guard.headers import Slot, basic, bearer
from vault.guard.targets import Target
from vault.guard.transport import Request
from vault.redact.patterns import spellings
from vault.secret import Secret

TOKEN = 'tok/Aa1+Bb2"Cc3=Dd4_Ee5'
SECRET = Secret(TOKEN)
WANTED = {"content-type", "x-echo", "etag", "digest", "content-md5"}


def asking(there: Upstream, slot: Slot = bearer(SECRET)) -> Request:  # noqa: B008 - it is frozen
    return Request("POST", Target(HOST, there.port, "/"), [("Authorization", slot)], b"{}")


def sse(data: str) -> bytes:
    return f": comment\r\nevent: message\r\ndata: {data}\r\n\r\n".encode()


def chunked(*parts: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


RAW = TOKEN.encode()
ECHOES: dict[str, Callable[[], bytes]] = {
    "json": lambda: reply(json.dumps({"error": f"bad token {TOKEN}"}).encode()),
    "json in json": lambda: reply(json.dumps({"text": json.dumps({"auth": TOKEN})}).encode()),
    "sse": lambda: reply(sse(json.dumps({"auth": TOKEN})), kind="text/event-stream"),
    "error": lambda: reply(b"no such token: " + RAW, status="401 Unauthorized", kind="text/plain"),
    "malformed json": lambda: reply(b'{"auth": "' + RAW),
    "page": lambda: reply(TOKEN.replace('"', "&quot;").encode(), kind="text/html"),
    "url": lambda: reply(b"https://x.example/?t=" + quote(TOKEN).encode()),
    "url, all of it": lambda: reply(quote(TOKEN, safe="").encode()),
    "hex": lambda: reply(RAW.hex().encode()),
    "base64": lambda: reply(b64encode(RAW)),
    "base64 of user and it": lambda: reply(b64encode(b"user:" + RAW)),
    "cut in two": lambda: chunked(b"x" + RAW[:9], RAW[9:] + b"y"),
    "byte by byte": lambda: chunked(*(bytes([byte]) for byte in b"x" + RAW + b"y")),
    "gzip": lambda: reply(gzip.compress(b"auth " + RAW), "Content-Encoding: gzip"),
    "deflate": lambda: reply(zlib.compress(b"auth " + RAW), "Content-Encoding: deflate"),
    "header": lambda: reply(b"", "X-Echo: Bearer " + TOKEN),
}


@pytest.mark.parametrize("way", ECHOES)
async def test_a_secret_that_is_given_back_never_reaches_the_caller_v28(
    tmp_path: Path, way: str
) -> None:
    async with (
        guarded(tmp_path, says(ECHOES[way]())) as (guard, [there]),
        guard.send(asking(there), wanted=WANTED) as response,
    ):
        told = await response.read() + repr(response.headers).encode()
        assert b"[REDACTED]" in told
        assert [each for each in spellings([SECRET]) if each in told] == []
        assert response.reflected


async def test_a_header_with_it_that_nobody_wants_is_a_reflection_too_v28(tmp_path: Path) -> None:
    raw = reply(b"fine", f"X-Debug: {TOKEN}")
    async with (
        guarded(tmp_path, says(raw)) as (guard, [there]),
        guard.send(asking(there)) as response,
    ):
        assert response.reflected
        assert await response.read() == b"fine"


async def test_basic_credentials_and_those_of_the_body_are_looked_for_too_v28(
    tmp_path: Path,
) -> None:
    refresh = Secret("refresh-0123456789abcdef")

    async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
        head = asked.head.replace(b"\r\n", b"\n")
        writer.write(reply(head + asked.body, kind="text/plain"))

    async with guarded(tmp_path, echo) as (guard, [there]):
        request = Request(
            "POST",
            Target(HOST, there.port, "/token"),
            [("Authorization", basic("client", SECRET))],
            b"refresh_token=" + refresh.reveal(),
        )
        async with guard.send(request, secrets=[refresh]) as response:
            told = await response.read()
        assert refresh.reveal() not in told
        assert b64encode(b"client:" + RAW) not in told
        assert told.count(b"[REDACTED]") == 2


async def test_nothing_is_told_of_a_body_that_may_be_changed_v28(tmp_path: Path) -> None:
    raw = reply(b"body", 'ETag: "abc"', "Digest: sha-256=x", "Content-MD5: y", "X-Echo: z")
    async with guarded(tmp_path, says(raw)) as (guard, [there]):
        async with guard.send(asking(there), wanted=WANTED) as response:
            assert response.headers == {"content-type": "application/json", "x-echo": "z"}
            assert not response.reflected
        plain = Request("GET", Target(HOST, there.port, "/"))
        async with guard.send(plain, wanted=WANTED) as response:
            assert set(response.headers) == WANTED


async def test_an_event_reaches_the_caller_before_the_next_one_is_sent(tmp_path: Path) -> None:
    had = asyncio.Event()
    first, second = sse('{"n":1}'), sse(f'{{"n":2,"auth":"{TOKEN[:5]}"}}')

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + first)
        await writer.drain()
        await had.wait()
        writer.write(second)
        await writer.drain()
        writer.close()

    async with guarded(tmp_path, answer) as (guard, [there]), guard.send(asking(there)) as response:
        came = b""
        async with asyncio.timeout(AT_ONCE):
            while len(came) < len(first):
                came += await anext(response)
            assert came == first
            had.set()
            assert b"".join([part async for part in response]) == second
        assert not response.reflected


async def test_what_comes_without_a_secret_comes_byte_for_byte(tmp_path: Path) -> None:
    body = bytes(range(256)) * 3000
    async with (
        guarded(tmp_path, says(reply(body))) as (guard, [there]),
        guard.send(asking(there)) as r,
    ):
        assert await r.read() == body
        assert r.received == len(body)
        assert not r.reflected
