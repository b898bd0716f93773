"""Responses that take their time, break off, or both."""

import asyncio
from collections.abc import Sequence

from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from brain.practice.sse import PING, Event, encode

_PING_EVERY = 10.0
"""Seconds of silence in a stream before a ping, as the API sends them."""


async def pause(seconds: float, receive: Receive) -> bool:
    """Wait; False as soon as the client is gone."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return True
    return False


class EventStream(StreamingResponse):
    """Server-sent events, one write each; `broken` leaves the stream without an end."""

    def __init__(self, events: Sequence[Event], *, chunk_delay: float, broken: bool) -> None:
        super().__init__((), media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._events = events
        self._chunk_delay = chunk_delay
        self._broken = broken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        for event in self._events:
            slow = self._chunk_delay and event["type"] == "content_block_delta"
            if slow and not await self._wait(receive, send):
                return
            await _write(send, encode(event))
        if not self._broken:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait(self, receive: Receive, send: Send) -> bool:
        left = self._chunk_delay
        while left > _PING_EVERY:
            if not await pause(_PING_EVERY, receive):
                return False
            await _write(send, encode(PING))
            left -= _PING_EVERY
        return await pause(left, receive)


class BrokenResponse(JSONResponse):
    """A response of which only half arrives."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await _write(send, bytes(self.body[: len(self.body) // 2]))


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
