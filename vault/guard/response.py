"""A reply as a caller gets it: its status, a few headers, and its bytes without secrets.

Everything is counted and timed on its way, and no byte goes to the caller that did not pass the
redactor: it is inside, so that nobody can forget it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterator
from typing import Self, cast

import httpcore2

from vault.guard.decoding import Decoder
from vault.guard.errors import GuardError, Malformed, TimedOut
from vault.guard.headers import OF_THE_BODY, encoding, incoming
from vault.guard.limits import Limits
from vault.guard.targets import Target
from vault.guard.wire import ERRORS, failure
from vault.redact.stream import Patterns, Redactor

_TURN = 64
"""Parts after which others get a turn, however fast they come."""


class Response:
    """One reply, read once: `async for part in response`, or `await response.read()`."""

    def __init__(
        self,
        head: httpcore2.Response,
        *,
        target: Target,
        patterns: Patterns,
        limits: Limits,
        deadline: float,
        wanted: Collection[str],
    ) -> None:
        if head.status < 200:  # an upgrade, which nobody asked for
            raise Malformed(part="status", status=head.status)
        self.status = head.status
        self._limits = limits
        self._deadline = deadline
        self._redactor = Redactor(patterns)
        self._decoder = Decoder(encoding(head.headers), limits)
        self._in_headers = any(patterns.spans(value) for _, value in head.headers)
        self.headers = _headers(head, target, patterns, wanted)
        """By name in lower case. None of them speaks of the body as it was before redaction."""
        self._parts: AsyncGenerator[bytes] = cast(
            AsyncGenerator[bytes], aiter(cast(AsyncIterable[bytes], head.stream))
        )
        self._pieces: Iterator[bytes] = iter(())
        self._error: GuardError | None = None
        self._over = False
        self._turns = 0

    @property
    def reflected(self) -> bool:
        """Whether a secret was in what was read of the reply until now, or in its headers."""
        return self._in_headers or self._redactor.found

    @property
    def received(self) -> int:
        """Bytes of the body until now, decompressed, before redaction."""
        return self._decoder.given

    async def read(self) -> bytes:
        """All of it."""
        return b"".join([part async for part in self])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next bytes that may be seen, as soon as there are any. GuardError when it failed."""
        if self._error is not None:
            raise self._error
        try:
            return await self._next()
        except GuardError as error:
            self._error = error
            raise

    async def _next(self) -> bytes:
        while not self._over:
            for piece in self._pieces:
                if passed := self._redactor.feed(piece):
                    return passed
            part = await self._part()
            if part is None:
                self._decoder.end()
                self._over = True
                if rest := self._redactor.end():
                    return rest
            else:
                self._pieces = self._decoder.feed(part)
        raise StopAsyncIteration

    async def _part(self) -> bytes | None:
        """What comes next of the wire, None at its end."""
        self._turns += 1
        if self._turns % _TURN == 0:
            await asyncio.sleep(0)
        until = min(self._deadline, asyncio.get_running_loop().time() + self._limits.idle)
        try:
            async with asyncio.timeout_at(until):
                return await anext(self._parts, None)
        except TimeoutError:
            total = until >= self._deadline
            raise TimedOut(limit="total" if total else "idle") from None
        except ERRORS as error:
            raise failure(error) from None

    async def aclose(self) -> None:
        """Let go of the connection; the transport does it."""
        await self._parts.aclose()

    def __repr__(self) -> str:
        return f"Response({self.status})"


def _headers(
    head: httpcore2.Response, target: Target, patterns: Patterns, wanted: Collection[str]
) -> dict[str, str]:
    """Those that are wanted, without secrets."""
    kept = {}
    for name, value in incoming(head.headers, wanted):
        if patterns and name in OF_THE_BODY:
            continue  # a secret may be struck out of the body later, when this is long gone
        if name == "location" and not target.same_origin(value.decode("latin-1")):
            continue
        passing = Redactor(patterns)
        kept[name] = (passing.feed(value) + passing.end()).decode("latin-1")
    return kept
