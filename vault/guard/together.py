"""A request's head waits for the first of its body, and goes with it.

What is written first after something was read goes with what is written next, or before the next
read: one record of TLS and one turn of the other side's, instead of two.
"""

from contextlib import suppress
from typing import Any

import httpcore2
from httpcore2 import AsyncNetworkStream


class Together(AsyncNetworkStream):
    """Around the stream of a connection."""

    def __init__(self, inner: AsyncNetworkStream) -> None:
        self._inner = inner
        self._held = b""
        self._first = True

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """What comes."""
        if self._held:
            with suppress(httpcore2.WriteError):  # it may have answered all the same
                await self.write(b"", timeout)
        self._first = True
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Now, or with what is next."""
        if self._first and buffer:
            self._first, self._held = False, buffer
            return
        whole, self._held, self._first = self._held + buffer, b"", False
        await self._inner.write(whole, timeout)

    async def aclose(self) -> None:
        """End it."""
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        """As the connection has it."""
        return self._inner.get_extra_info(info)
