"""The Messages API that Claude Code is pointed at, and its folder, without Claude Code."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anthropic
import httpx2
import pytest

from brain.harnesses.claude_code import endpoint
from brain.harnesses.claude_code.endpoint import Ask, Endpoint
from brain.harnesses.claude_code.folder import Folder
from brain.harnesses.claude_code.wire import error_of, message_of
from tests.brain.stage import WAIT

REPLY = message_of("msg_1", "m", [{"type": "text", "text": "so"}], "end_turn", {})


@pytest.fixture
def asked() -> asyncio.Queue[Ask]:
    return asyncio.Queue()


@pytest.fixture
async def served(asked: asyncio.Queue[Ask]) -> AsyncIterator[Endpoint]:
    made = Endpoint(asked.put_nowait)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def client(served: Endpoint) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=served.url, auth_token=served.token, api_key=None, max_retries=0, timeout=WAIT
    ) as made:
        yield made


async def test_a_question_waits_for_its_answer_streamed_or_not(
    asked: asyncio.Queue[Ask], client: anthropic.AsyncAnthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PING_EVERY", 0.01)

    async def stream() -> anthropic.types.Message:
        async with client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as streaming:
            return await streaming.get_final_message()

    async def whole() -> anthropic.types.Message:
        return await client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )

    for way in (stream, whole):
        asking = asyncio.create_task(way())
        async with asyncio.timeout(WAIT):
            ask = await asked.get()
            assert ask.body["messages"] == [{"role": "user", "content": "hi"}]
            ask.reply(REPLY)
            message = await asking
        assert message.content[0].type == "text"
        assert message.content[0].text == "so"


async def test_one_who_lost_the_connection_and_asks_again_asks_the_same_question(
    asked: asyncio.Queue[Ask], served: Endpoint
) -> None:
    body = {"model": "m", "messages": []}
    key = {"x-api-key": served.token}
    async with httpx2.AsyncClient(base_url=served.url, headers=key) as http:
        with pytest.raises(httpx2.TimeoutException):
            await http.post("/v1/messages", json=body, timeout=0.2)
        asked.get_nowait().reply(REPLY)
        again = await http.post("/v1/messages", json=body, timeout=WAIT)
        assert again.json() == REPLY
    assert asked.empty()


async def test_a_failed_question_is_an_error_of_the_api(
    asked: asyncio.Queue[Ask], client: anthropic.AsyncAnthropic
) -> None:
    asking = asyncio.create_task(
        client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )
    )
    async with asyncio.timeout(WAIT):
        (await asked.get()).reply(error_of("invalid_request_error", "too long"))
        with pytest.raises(anthropic.BadRequestError, match="too long"):
            await asking


async def test_tokens_are_counted_without_asking_anyone(
    asked: asyncio.Queue[Ask], client: anthropic.AsyncAnthropic
) -> None:
    counted = await client.messages.count_tokens(
        model="m", messages=[{"role": "user", "content": "x" * 400}]
    )
    assert counted.input_tokens > 100
    assert asked.empty()


async def test_who_does_not_know_the_token_is_answered_nothing(
    asked: asyncio.Queue[Ask], served: Endpoint
) -> None:
    async with httpx2.AsyncClient(base_url=served.url) as http:
        for headers in ({}, {"x-api-key": "guess"}, {"authorization": "Bearer guess"}):
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                answer = await http.post(path, json={}, headers=headers, timeout=WAIT)
                assert answer.status_code == 401
    assert asked.empty()


async def test_it_listens_on_loopback_alone_and_on_another_port_with_another_token_each_time(
    served: Endpoint,
) -> None:
    other = Endpoint(lambda ask: None)
    await other.start()
    assert other.url != served.url
    assert other.token != served.token
    assert served.url.startswith("http://127.0.0.1:")
    await other.stop()
    with socket.socket() as gone:
        host, port = other.url.removeprefix("http://").split(":")
        assert gone.connect_ex((host, int(port))) != 0


async def test_whatever_else_is_reached_for_is_refused_and_noted(served: Endpoint) -> None:
    async with httpx2.AsyncClient(base_url=served.url) as http:
        answer = await http.get("/api/hello", timeout=WAIT)
    assert answer.status_code == 404
    assert ["/api/hello" in stray for stray in served.strays] == [True]


async def test_one_that_reaches_for_more_and_more_is_noted_only_so_often(
    served: Endpoint,
) -> None:
    async with httpx2.AsyncClient(base_url=served.url) as http:
        for _ in range(2 * endpoint.STRAYS_MAX):
            answer = await http.get("/" + "x" * 5_000, timeout=WAIT)
            assert answer.status_code == 404
    assert len(served.strays) == endpoint.STRAYS_MAX
    assert max(len(stray) for stray in served.strays) < 1_000


def test_a_folder_of_a_brain_that_is_no_more_is_removed_at_the_next_start(
    homes: Path,
) -> None:
    code = "import os; from brain.harnesses.claude_code.folder import Folder; "
    code += "print(Folder().path, flush=True); os._exit(9)"
    environ = {**os.environ, "TMPDIR": str(homes)}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env=environ, capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    assert left.parent == homes
    mine = Folder()
    other = Folder()
    assert not left.exists()
    assert mine.path.stat().st_mode & 0o077 == 0
    for folder in (mine, other):
        assert folder.path.is_dir()
        folder.remove()
    assert list(homes.iterdir()) == []
