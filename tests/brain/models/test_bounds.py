"""What a service sends is bounded before anything is kept of it, and holds up nobody."""

import asyncio
import gzip
import itertools
import json
import struct
import time
import tracemalloc
from collections.abc import Iterable

import httpx2
import pytest

from brain.effects import Failed
from brain.models import bounds
from brain.models.settings import Provider
from brain.session import model_kinds as kinds
from tests.brain.models.asking import ask, failure, reply
from tests.model_endpoint import Answer, Asked, Endpoint, Wire, endpoint, events, sse

KEY = {"x-api-key": "sk-a-key-of-a-test"}
PIECE = b"x" * 60_000


def at(service: Endpoint) -> Provider:
    return Provider(kind="anthropic", base_url=service.url, headers=KEY)


def endless(begin: bytes, piece: bytes, status: int = 200, **headers: str) -> Answer:
    """A body that ends when nobody reads it."""

    async def answer(wire: Wire, _: Asked) -> None:
        await wire.head(status, **headers)
        await wire.send(begin)
        while True:
            await wire.send(piece)

    return answer


async def stood(asked: asyncio.Task[Failed]) -> float:
    """The longest that the event loop stood while a call was under way, in seconds."""
    longest, before = 0.0, time.perf_counter()
    while not asked.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"event: message_start\ndata: ", PIECE),
        (b"event: message_start\ndata: ", b"x\n" * 30_000),
        (b"", b"event: ping\ndata: {}\n\n" * 3_000),
    ],
    ids=["one line without end", "lines without end", "events without end"],
)
async def test_a_reply_without_end_fails_its_call_and_others_notice_nothing(
    begin: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STREAM_BYTES", 8 * 1024 * 1024)
    async with endpoint() as service:
        service.answers = [endless(begin, piece, content_type="text/event-stream")]
        call = asyncio.create_task(failure(at(service)))
        longest = await stood(call)
        failed = call.result()
        assert (failed.kind, failed.retryable) == (kinds.CUT, True)
        assert "larger than" in failed.message or "lines" in failed.message
        assert longest < 2.0


async def test_a_reply_that_is_packed_is_refused_unread() -> None:
    async with endpoint() as service:
        packed = gzip.compress(sse(events([{"type": "text", "text": "x"}])))
        service.answers = [service.gives(packed, content_encoding="gzip")]
        failed = await failure(at(service))
        assert (failed.kind, failed.retryable) == (kinds.CUT, True)
        assert "packed (gzip)" in failed.message
        assert service.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_of_an_error_without_end_the_beginning_is_read_and_its_status_is_known(
    status: int,
) -> None:
    async with endpoint() as service:
        service.answers = [endless(b'{"error":{"message":"', PIECE, status)]
        tracemalloc.start()
        failed = await failure(at(service))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert failed.status == status
        assert failed.message
        assert peak < 32 * 1024 * 1024


async def test_an_error_that_is_packed_is_known_by_its_status_alone() -> None:
    async with endpoint() as service:
        bomb = gzip.compress(b'{"error":{"message":"' + b"x" * 10_000_000)
        service.answers = [service.gives(bomb, 400, content_encoding="gzip")]
        failed = await failure(at(service))
        assert (failed.status, failed.retryable) == (400, False)
        assert "packed" in failed.message


async def test_a_redirect_is_followed_nowhere_and_the_failure_says_so() -> None:
    async with endpoint() as other, endpoint() as service:
        for status in (301, 302, 303, 307, 308):
            service.answers = [service.gives(b"", status, location=f"{other.url}/v1/messages")]
            failed = await failure(at(service))
            assert (failed.kind, failed.retryable) == (kinds.PROVIDER, False)
            assert f"'p' answered {status}: a redirect, which is not followed" in failed.message
        assert other.asked == []


async def test_a_message_of_aws_that_says_it_is_huge_is_refused_before_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bearer")
    async with endpoint() as service:
        for size in (2**31, bounds.EVENT_BYTES + 1, 3):
            begin = struct.pack("!II", size, 0)
            service.answers = [endless(begin, PIECE, content_type="application/json")]
            provider = Provider(kind="bedrock", base_url=service.url, region="r")
            failed = await failure(provider)
            assert (failed.kind, failed.retryable) == (kinds.CUT, True)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        for piece in self._pieces:
            yield piece


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_an_event_is_passed_on_whole_however_its_bytes_come(end: bytes, size: int) -> None:
    whole = [b"data: " + str(n).encode() + end + end for n in range(20)] + [b"data: cut"]
    wire = b"".join(whole)
    pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
    response = httpx2.Response(200, stream=_Body(pieces))
    bounds.bound(response, aws=False)
    came = [part async for part in response.aiter_raw()]
    assert b"".join(came) == wire
    edges = set(itertools.accumulate(map(len, whole)))
    assert set(itertools.accumulate(map(len, came))) <= edges


async def test_a_reply_of_many_pieces_is_read_as_ever() -> None:
    async with endpoint() as service:
        wire = sse(events([{"type": "text", "text": "é" * 50_000}]))

        async def drips(to: Wire, _: Asked) -> None:
            await to.head(content_type="text/event-stream")
            for start in range(0, len(wire), 5_000):
                await to.send(wire[start : start + 5_000])

        service.answers = [drips]
        answer = await reply(at(service))
        assert answer.blocks[0]["text"] == "é" * 50_000


async def test_a_key_that_an_error_quotes_is_struck_out() -> None:
    secret = KEY["x-api-key"]
    async with endpoint() as service:
        error = {"type": "error", "error": {"type": "api_error", "message": f"key {secret} bad"}}
        service.answers = [
            service.refuses(401, "authentication_error", f"{'x' * 1_990} {secret} is no good"),
            service.refuses(400, "invalid_request_error", f"{secret}{secret}"),
            service.gives(f"<html>{secret}</html>".encode(), 500),
            service.streams([error]),
            service.streams([{"type": "content_block_start", "index": secret}]),
        ]
        for _ in range(len(service.answers)):
            failed = await ask(at(service))
            assert isinstance(failed, Failed)
            assert secret[:9] not in json.dumps(failed.message), failed
