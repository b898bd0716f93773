"""Where a browser on this machine comes back to with the answer: one page, for one question.

Others on this machine may ask for it too: what does not answer the question is refused, and does
not end the waiting.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from vault.oauth.consent import Question

PATH = "/callback"
_HEAD_MAX = 16 * 1024
_HEAD_LIMIT = 10.0
_CONNECTIONS = 8
"""At a time: a browser opens some before it needs them."""
_GONE = (
    TimeoutError,
    ConnectionError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
)
"""What a visitor may do instead of asking for a page."""


class Loopback:
    """A port of 127.0.0.1 that waits."""

    def __init__(self) -> None:
        self.redirect = ""
        """What to send the browser back to."""
        self._question: Question | None = None
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._free = asyncio.Semaphore(_CONNECTIONS)

    def expect(self, question: Question) -> None:
        """From now on the answer to this one is waited for."""
        self._question = question

    async def answer(self) -> str:
        """The URL by which the browser comes back. The caller bounds the wait."""
        return await self._answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request, and its end."""
        async with self._free:
            with suppress(
                TimeoutError,
                ConnectionError,
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
            ):
                async with asyncio.timeout(_HEAD_LIMIT):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._page(head.decode("latin-1")))
                    await writer.drain()
            writer.close()

    def _page(self, head: str) -> bytes:
        method, _, rest = head.partition(" ")
        path = rest.partition(" ")[0]
        url = self.redirect.removesuffix(PATH) + path
        if method != "GET" or self._question is None or not self._question.answers(url):
            return _reply("404 Not Found", "Nothing waits for this.")
        if not self._answer.done():
            self._answer.set_result(url)
        return _reply("200 OK", "Carpal has the answer. You can close this page.")


@asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    """While it waits."""
    there = Loopback()
    server = await asyncio.start_server(there.serve, "127.0.0.1", 0, limit=_HEAD_MAX)
    async with server:
        port = server.sockets[0].getsockname()[1]
        there.redirect = f"http://127.0.0.1:{port}{PATH}"
        yield there


def _reply(status: str, text: str) -> bytes:
    body = f"<!doctype html><title>Carpal</title><p>{text}</p>".encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n"
        "Content-Security-Policy: default-src 'none'\r\n\r\n"
    ).encode() + body
