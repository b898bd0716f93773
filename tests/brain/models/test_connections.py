"""A connection to a service is used again: making one takes round trips before a model is asked."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from brain.models import model as models
from brain.models.model import Model, Reply
from brain.models.settings import Provider
from tests.brain.models.asking import ASK
from tests.brain.stage import WAIT
from tests.model_endpoint import events, sse

_END = b"0\r\n\r\n"


class Kept:
    """A service that keeps its connections."""

    def __init__(self, end: bytes) -> None:
        """`end`: what comes after a message."""
        self.made = self.asked = 0
        self._end = end

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, any number of requests."""
        self.made += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                self.asked += 1
                said = sse(events([{"type": "text", "text": "hello"}]))
                writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n")
                writer.write(b"transfer-encoding: chunked\r\n\r\n")
                writer.write(b"%x\r\n%s\r\n" % (len(said), said))
                await asyncio.sleep(0)  # the end comes by itself, as services send it
                writer.write(self._end)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def called(end: bytes, times: int) -> AsyncIterator[Kept]:
    """A service that was called so often, and answered each time."""
    kept = Kept(end)
    server = await asyncio.start_server(kept.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    headers = {"x-api-key": "k"}
    provider = Provider(kind="anthropic", base_url=f"http://{host}:{port}", headers=headers)
    model = Model({"p": provider}, "p")
    try:
        async with asyncio.timeout(WAIT):
            for _ in range(times):
                answer = await model.call(ASK, lambda *_: None)
                assert isinstance(answer, Reply)
        yield kept
    finally:
        await model.close()
        server.close()


async def test_a_connection_serves_one_call_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_REST", WAIT)
    async with called(_END, 3) as kept:
        assert (kept.asked, kept.made) == (3, 1)


@pytest.mark.parametrize("end", [b"", b"5\r\nevent", b"nonsense\r\n"])
async def test_a_stream_that_does_not_end_with_its_message_holds_up_no_reply(end: bytes) -> None:
    began = time.monotonic()
    async with called(end, 2) as kept:
        assert (kept.asked, kept.made) == (2, 2)
    assert time.monotonic() - began < WAIT / 2
