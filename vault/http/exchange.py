"""One request and its answer, as a handler of the vault sees them."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from carpal.identity import Identity

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gone(Exception):
    """The caller is gone: nobody waits for an answer."""


class TooLarge(Exception):
    """The body has more bytes than are taken."""


class Exchange:
    """Who asks, for what; and the way to answer, once."""

    def __init__(
        self, caller: Identity, scope: Mapping[str, Any], receive: Receive, send: Send
    ) -> None:
        self.caller = caller
        """From the certificate of the connection alone."""
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("ascii")
        """As it was sent: nothing in it is decoded."""
        self.query: str = scope["query_string"].decode("ascii")
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._send = send
        self._read = False
        self.begun = False
        self.ended = False

    def header(self, name: str) -> str | None:
        """A header's value; of several, none is good enough: None too."""
        wanted = name.lower().encode("ascii")
        found = [value for key, value in self._headers if key == wanted]
        return found[0].decode("latin-1") if len(found) == 1 else None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """All of them, as they came."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers]

    async def body(self, most: int) -> bytes:
        """All of the body. Raises TooLarge and Gone."""
        return b"".join([part async for part in self.parts(most)])

    async def parts(self, most: int) -> AsyncIterator[bytes]:
        """The body as it comes. Raises TooLarge and Gone."""
        left = most
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise Gone
            left -= len(message["body"])
            if left < 0:
                raise TooLarge
            self._read = not message["more_body"]
            if message["body"]:
                yield message["body"]
            if self._read:
                return

    async def passed_over(self, most: int) -> None:
        """Read what is left of the body: a caller that is still sending may not hear its answer."""
        if not self._read:
            with contextlib.suppress(TooLarge):
                async for _ in self.parts(most):
                    pass

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin an answer of unknown length."""
        self.begun = True
        lines = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": lines})

    async def write(self, data: bytes) -> None:
        """Some of the answer; waits while the caller reads no faster."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """The answer is whole."""
        self.ended = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """The whole answer."""
        more = {"content-length": str(len(body)), "cache-control": "no-store", **(headers or {})}
        await self.begin(status, more)
        self.ended = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def answer_json(self, status: int, value: Any) -> None:
        """The whole answer, as JSON."""
        body = json.dumps(value, separators=(",", ":")).encode()
        await self.answer(status, body, {"content-type": "application/json"})
