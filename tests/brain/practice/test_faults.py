"""Errors, cuts and delays that scripts play, as the real client meets them."""

import asyncio
import time
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.lib.streaming import AsyncMessageStreamManager

from brain.practice.answer import Answer, Cut, Delay, Failure, Script, ToolCall
from tests.practice import BASH, client_of, practice_server, requests_of, text_in, user

ASK: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [user("go")]}
BRISK = 0.01
"""Seconds a client is told to wait before it tries again."""


def failing(status: int, **more: Any) -> Script:
    return Script([Answer(text="well", error=Failure(status, retry_after=BRISK, **more))])


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (413, "request_too_large", anthropic.ContentTooLargeError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.OverloadedError),
    ],
)
async def test_an_error_surfaces_as_the_clients_own_class(
    status: int, kind: str, error: type[anthropic.APIStatusError]
) -> None:
    async with practice_server([failing(status)]) as url, client_of(url) as client:
        with pytest.raises(error) as caught:
            await client.messages.create(**ASK)
        with pytest.raises(error):
            async with client.messages.stream(
                **{**ASK, "messages": [user("another request")]}
            ) as stream:
                await stream.get_final_message()
    assert caught.value.type == kind
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "0.01"
    assert caught.value.request_id
    assert caught.value.body["request_id"] == caught.value.request_id  # type: ignore[index]
    assert "practice model" in (caught.value.api_message or "")


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_the_clients_retries_succeed_after_as_many_failures_as_the_script_says(
    status: int,
) -> None:
    async with practice_server([failing(status, times=2)]) as url:
        async with client_of(url, max_retries=2) as client:
            message = await client.messages.create(**ASK)
        asked = await requests_of(url)
    assert text_in(message) == "well"
    assert [(entry["status"], entry["retry"]) for entry in asked] == [
        (status, 0),
        (status, 1),
        (200, 2),
    ]


async def test_failures_are_counted_per_request() -> None:
    async with practice_server([failing(529)]) as url, client_of(url) as client:
        for text in ("one", "two"):
            ask = {**ASK, "messages": [user(text)]}
            with pytest.raises(anthropic.OverloadedError):
                await client.messages.create(**ask)
            await client.messages.create(**ask)


async def test_an_error_may_stay_for_ever() -> None:
    async with practice_server([failing(529, times="always")]) as url:
        async with client_of(url, max_retries=3) as client:
            with pytest.raises(anthropic.OverloadedError):
                await client.messages.create(**ASK)
        assert len(await requests_of(url)) == 4


async def collect(stream: AsyncMessageStreamManager, into: list[str]) -> None:
    """Deltas of text and tool input, as far as they come."""
    async with stream as events:
        async for event in events:
            if event.type == "text":
                into.append(event.text)
            elif event.type == "input_json":
                into.append(event.partial_json)


async def test_an_error_can_come_in_the_middle_of_a_stream() -> None:
    script = Script([Answer(text="a long story", chunk=3, error=Failure(529, after=5))])
    async with practice_server([script]) as url, client_of(url) as client:
        seen: list[str] = []
        with pytest.raises(anthropic.APIStatusError, match="Overloaded") as caught:
            await collect(client.messages.stream(**ASK), seen)
        assert seen == ["a l", "ong"]
        assert caught.value.status_code == 200
        assert caught.value.type == "overloaded_error"
        async with client.messages.stream(**ASK) as stream:
            assert await stream.get_final_text() == "a long story"


async def test_a_cut_stream_breaks_where_the_script_says_and_comes_whole_the_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn = Answer(tools=[ToolCall("bash", {"command": "ls"})], chunk=4, cut=Cut(after=6, times=2))
    async with practice_server([Script([turn])]) as url, client_of(url) as client:
        for _ in range(2):
            parts: list[str] = []
            with pytest.raises(httpx2.RemoteProtocolError):
                await collect(client.messages.stream(tools=[BASH], **ASK), parts)
            assert parts == ["", '{"co', "mman"]
        async with client.messages.stream(tools=[BASH], **ASK) as stream:
            message = await stream.get_final_message()
    assert message.content[0].input == {"command": "ls"}  # type: ignore[union-attr]
    assert caplog.records == [], "a cut that was meant is no error of the server"


async def test_a_cut_before_the_first_event_leaves_an_empty_stream() -> None:
    script = Script([Answer(text="a", cut=Cut(after=0))])
    async with practice_server([script]) as url, client_of(url) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.messages.stream(**ASK) as stream:
                await stream.get_final_message()


async def test_a_stream_can_end_early_as_if_it_were_whole() -> None:
    script = Script([Answer(text="a long story", chunk=3, cut=Cut(after=5, clean=True))])
    async with (
        practice_server([script]) as url,
        client_of(url) as client,
        client.messages.stream(**ASK) as stream,
    ):
        message = await stream.get_final_message()
    assert text_in(message) == "a long"
    assert message.stop_reason is None, "only its missing end tells that it is not whole"


async def test_a_cut_response_is_retried_by_the_client() -> None:
    script = Script([Answer(text="whole", cut=Cut(after=0))])
    async with practice_server([script]) as url:
        async with client_of(url) as client:
            with pytest.raises(anthropic.APIConnectionError):
                await client.messages.create(**ASK)
        async with client_of(url, max_retries=1) as client:
            message = await client.messages.create(**{**ASK, "messages": [user("again")]})
    assert text_in(message) == "whole"


async def test_errors_come_before_cuts_and_then_the_answer() -> None:
    script = Script([Answer(text="a", error=Failure(500), cut=Cut(after=1))])
    async with practice_server([script]) as url, client_of(url) as client:
        with pytest.raises(anthropic.InternalServerError):
            await client.messages.create(**ASK)
        with pytest.raises(anthropic.APIConnectionError):
            await client.messages.create(**ASK)
        await client.messages.create(**ASK)


async def test_a_delay_and_the_latency_hold_back_the_first_byte() -> None:
    script = Script([Answer(text="a", delay=Delay(first=0.05))])
    async with practice_server([script], latency=0.05) as url:
        async with client_of(url) as client:
            begun = time.monotonic()
            await client.messages.create(**ASK)
            took = time.monotonic() - begun
        (entry,) = await requests_of(url)
    assert took >= 0.1
    assert entry["answered"] - entry["arrived"] >= 0.1


async def test_a_client_that_leaves_frees_a_stream_that_would_have_taken_an_hour() -> None:
    script = Script([Answer(text="abc", chunk=1, delay=Delay(chunk=3600))])
    begun = time.monotonic()
    async with practice_server([script]) as url, client_of(url) as client:
        async with client.messages.stream(**ASK) as stream:
            async for event in stream:
                if event.type == "content_block_start":
                    break
        (entry,) = await requests_of(url)
        assert entry["status"] == 200
    assert time.monotonic() - begun < 10


async def test_the_server_stops_while_an_answer_is_held_back() -> None:
    script = Script([Answer(text="a", delay=Delay(first=3600))])
    async with client_of("http://127.0.0.1:1") as client:
        async with practice_server([script]) as url:
            pending = client.with_options(base_url=url)
            call = asyncio.create_task(pending.messages.create(**ASK))
            (entry,) = await requests_of(url, wait=10)
            assert entry["status"] is None
        with pytest.raises(anthropic.APIError):
            async with asyncio.timeout(10):
                await call
