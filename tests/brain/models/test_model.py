"""The door to the model: replies come whole, failures come as `Failed`, never as a raise."""

from pathlib import Path
from typing import Any

import pytest

from brain.effects import Failed
from brain.models.model import Model, Reply
from brain.practice.answer import Answer, Cut, Failure, Script, ToolCall
from tests.practice import BASH, practice_server, user

ASK: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [user("go")], "tools": [BASH]}


async def call(
    monkeypatch: pytest.MonkeyPatch, *answers: Answer, attempts: int = 1
) -> tuple[Reply | Failed, list[tuple[str, bool]]]:
    """The last of some attempts against a scripted service, and the deltas it gave."""
    async with practice_server([Script(list(answers))]) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        model = Model()
        deltas: list[tuple[str, bool]] = []
        try:
            for _ in range(attempts):
                deltas.clear()
                answer = await model.call(
                    ASK, lambda text, thinking: deltas.append((text, thinking))
                )
        finally:
            await model.close()
        return answer, deltas


async def test_a_reply_has_its_blocks_as_the_api_gave_them_and_streams_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = Answer(
        thinking="let me see", text="running it", tools=[ToolCall("bash", {"command": "true"})]
    )
    reply, deltas = await call(monkeypatch, turn)
    assert isinstance(reply, Reply)
    assert [block["type"] for block in reply.blocks] == ["thinking", "text", "tool_use"]
    assert reply.blocks[0]["signature"]
    assert reply.blocks[2]["input"] == {"command": "true"}
    assert reply.stop_reason == "tool_use"
    assert reply.usage["output_tokens"] > 0
    assert "".join(text for text, thinking in deltas if not thinking) == "running it"
    assert "".join(text for text, thinking in deltas if thinking) == "let me see"


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "model_request_failed_error", False),
        (401, "authentication_error", False),
        (429, "model_rate_limited_error", True),
        (500, "model_request_failed_error", True),
        (529, "model_overloaded_error", True),
    ],
)
async def test_a_refused_request_says_its_kind_and_whether_to_try_again(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: str, retryable: bool
) -> None:
    turn = Answer(text="x", error=Failure(status=status, retry_after=3))
    failed, _ = await call(monkeypatch, turn)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.retryable) == (kind, retryable)
    assert failed.retry_after == 3


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("after", [0, 1, 4, 6])
async def test_a_stream_cut_anywhere_is_a_failure_to_try_again_never_half_a_reply(
    monkeypatch: pytest.MonkeyPatch, after: int, clean: bool
) -> None:
    turn = Answer(text="a long enough text to be cut", chunk=3, cut=Cut(after=after, clean=clean))
    failed, _ = await call(monkeypatch, turn)
    assert isinstance(failed, Failed)
    assert failed.retryable
    whole, _ = await call(monkeypatch, turn, attempts=2)
    assert isinstance(whole, Reply)


async def test_an_error_inside_a_stream_is_a_failure_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = Answer(text="some text", error=Failure(status=529, after=3))
    failed, _ = await call(monkeypatch, turn)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.retryable) == ("model_overloaded_error", True)


async def test_a_service_that_is_not_there_is_a_failure_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    model = Model()
    failed = await model.call(ASK, lambda text, thinking: None)
    await model.close()
    assert isinstance(failed, Failed)
    assert failed.retryable


async def test_without_a_key_the_failure_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    model = Model()
    failed = await model.call(ASK, lambda text, thinking: None)
    await model.close()
    assert isinstance(failed, Failed)
    assert not failed.retryable
