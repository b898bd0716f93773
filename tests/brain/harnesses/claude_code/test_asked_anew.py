"""A question that makes no sense any more is not asked again, and none is asked for ever."""

import asyncio
from typing import Any

import pytest

from brain.effects import Failed
from brain.harnesses.claude_code import harness
from brain.models.model import Reply
from brain.session import model_kinds
from tests.brain.harnesses.claude_code.conftest import LONG, drive, say, take_over, texts
from tests.brain.harnesses.claude_code.simulated import Simulated
from tests.brain.said import Said, uses
from tests.brain.stage import Stage, result

REAL = pytest.param(
    "real", marks=[pytest.mark.slow, pytest.mark.timeout(180)], id="the_real_program"
)
TOO_LONG = Failed(model_kinds.CONTEXT, "prompt is too long", retryable=False, status=400)


@pytest.fixture(params=["simulated", REAL])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Simulated]:
    """What is driven; the class says how, where it is the simulated one."""
    kind: type[Simulated] = type("One", (Simulated,), {})
    if request.param == "simulated":
        use(kind, monkeypatch)
    return kind


def use(kind: type[Simulated], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the harness start that."""

    async def load() -> type[Simulated]:
        return kind

    monkeypatch.setattr(harness, "_load", load)
    monkeypatch.setattr(harness, "_FIRST_WAIT", 0.0)


async def test_after_an_interrupt_and_a_message_right_after_it_one_question_more_is_asked(
    driven: Stage, program: type[Simulated]
) -> None:
    await take_over(driven, limits={"model_requests": 6})
    model = Said()
    model.gate.clear()
    driving = asyncio.create_task(drive(driven, model))
    async with asyncio.timeout(LONG):
        await model.asking.wait()
        # The brain has both at once, as when it is busy.
        await both(driven, "another thing")
        model.gate.set()
        await driving
    assert model.asked == 2
    assert texts(model.requests[1])[-1] == "another thing"
    kinds = await driven.kinds()
    assert kinds.count("span.model_request_start") == 2
    assert kinds.count("agent.message") == 1
    assert kinds[-1] == "session.status_idle"


async def both(driven: Stage, text: str) -> None:
    """A person interrupts and says something, before the driver gets round to either."""
    append, gate = driven.driver.append, asyncio.Event()

    async def held(*events: Any) -> Any:
        await gate.wait()
        return await append(*events)

    driven.driver.append = held  # type: ignore[method-assign, assignment]
    try:
        await driven.interrupt()
        await say(driven, text)
        await driven.driver.until(lambda t: bool(t.interrupted))
    finally:
        driven.driver.append = append  # type: ignore[method-assign]
        gate.set()


async def test_a_question_that_was_too_long_is_asked_anew_after_the_cut(
    driven: Stage, program: type[Simulated]
) -> None:
    await take_over(driven, context={"policy": "compact", "window_tokens": 20_000})
    driven.hands.script["execute"] = [[result("long " * 3_000)], [result("wide " * 3_000)]]
    model = Said()
    summary = Reply([{"type": "text", "text": "What was done: much."}], "end_turn", {})
    model.replies = [uses("one"), uses("two"), TOO_LONG, summary]
    await drive(driven, model)
    kinds = await driven.kinds()
    assert kinds.count("agent.thread_context_compacted") == 1
    assert kinds[-1] == "session.status_idle"
    assert model.asked == 5
    assert "What was done: much." in texts(model.requests[4])[0]
    assert "long long" not in str(model.requests[4])
    assert "session.error" not in kinds


async def test_a_message_sent_while_a_question_fails_is_in_the_one_asked_again(
    driven: Stage, program: type[Simulated]
) -> None:
    await take_over(driven)
    model = Said()
    model.replies = [Failed(model_kinds.OVERLOADED, "busy", True, 0.0)]
    model.gate.clear()
    driving = asyncio.create_task(drive(driven, model))
    async with asyncio.timeout(LONG):
        await model.asking.wait()
        await say(driven, "mind the gap")
        model.gate.set()
        await driving
    assert model.asked == 2
    assert texts(model.requests[1]) == ["hi", "mind the gap"]


async def test_one_that_asks_a_title_at_each_start_and_falls_ends_the_turn(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: type[Simulated] = type("Falls", (Simulated,), {"titles": 1, "falls": True})
    use(kind, monkeypatch)
    await take_over(driven, limits={"model_requests": 20})
    model = Said()
    await drive(driven, model)
    assert kind.started == model.asked == harness.FALLS_MAX
    assert (await driven.datas())[-1]["stop_reason"]["type"] == "retries_exhausted"


async def test_one_whose_questions_are_all_its_own_ends_the_turn_and_says_so(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: type[Simulated] = type("Odd", (Simulated,), {"titles": 10**6})
    use(kind, monkeypatch)
    await take_over(driven, limits={"model_requests": 50})
    model = Said()
    await drive(driven, model)
    assert model.asked == harness.ASIDES_MAX
    assert kind.started == 1
    (error,) = [data["error"] for data in await driven.datas() if "error" in data]
    assert "none that goes on with the conversation" in error["message"]
    assert error["retry_status"] == {"type": "exhausted"}
    assert (await driven.datas())[-1]["stop_reason"]["type"] == "retries_exhausted"


async def test_a_message_sent_while_it_asks_a_title_is_answered_next(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: type[Simulated] = type("Titled", (Simulated,), {"titles": 1})
    use(kind, monkeypatch)
    await take_over(driven)
    model = Said()
    model.gate.clear()
    driving = asyncio.create_task(drive(driven, model))
    async with asyncio.timeout(LONG):
        await model.asking.wait()
        await say(driven, "and this")
        model.gate.set()
        await driving
    assert [texts(request)[-1] for request in model.requests] == ["A title?", "hi", "and this"]
    assert "session.error" not in await driven.kinds()
