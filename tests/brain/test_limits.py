"""A session spends no more than its limits, whoever dies, and goes on when one is raised."""

import asyncio
from typing import Any

import pytest

from brain.effects import Failed
from brain.models.model import Reply
from brain.runner import Runner
from brain.session.entries import New
from tests.brain.said import Said, uses
from tests.brain.stage import WAIT, Stage, emit
from tests.hands.place import until

USAGE = {"input_tokens": 10, "output_tokens": 20}


@pytest.fixture
def model() -> Said:
    return Said()


async def limit(stage: Stage, **limits: int) -> None:
    agent = {"model": "m", "max_tokens": 100, "limits": limits}
    await stage.driver.append(New("session.updated", {"agent": agent}))


async def run(stage: Stage, model: Said) -> None:
    runner = Runner(stage.driver, stage.fleet, stage.hub, model)
    async with asyncio.timeout(WAIT):
        await runner.run()


async def reason(stage: Stage) -> dict[str, Any]:
    """The newest idle's."""
    data: dict[str, Any] = (await stage.datas())[-1]["stop_reason"]
    return data


async def spent(stage: Stage) -> dict[str, int]:
    """As the newest idle says it."""
    data: dict[str, int] = (await stage.datas())[-1]["spent"]
    return data


async def test_the_limit_ends_the_turn_before_the_request_that_would_go_beyond_it(
    driven: Stage, model: Said
) -> None:
    await limit(driven, model_requests=2)
    model.replies = [uses("one"), uses("two"), uses("three")]
    await run(driven, model)
    assert model.asked == 2
    ended = await reason(driven)
    assert (ended["type"], ended["limit"]) == ("budget_reached", "model_requests")
    assert ended["limits"] == {"model_requests": 2}
    assert (await spent(driven))["model_requests"] == 2
    assert not driven.driver.transcript.open_calls(), "what was called is done"
    assert not driven.driver.transcript.has_work(), "it waits at no cost"


async def test_a_raised_limit_lets_the_session_go_on_where_it_was(
    driven: Stage, model: Said
) -> None:
    await limit(driven, model_requests=1)
    model.replies = [uses("one")]
    await run(driven, model)
    await driven.driver.append(New("session.updated", {"limits": {"model_requests": 5}}))
    assert driven.driver.transcript.has_work()
    await run(driven, model)
    assert (model.asked, await reason(driven)) == (2, {"type": "end_turn"})
    assert driven.driver.transcript.agent["model"] == "m"


async def test_a_request_reserves_in_the_log_before_it_is_sent(driven: Stage, model: Said) -> None:
    model.replies = [Reply([{"type": "text", "text": "hi"}], "end_turn", USAGE)]
    model.gate.clear()
    running = asyncio.create_task(run(driven, model))
    async with asyncio.timeout(WAIT):
        await model.asking.wait()
    # The log has it; the driver is told of that beside the request.
    await until(lambda: driven.driver.transcript.budget.spent, "it is folded")
    reserved = driven.driver.transcript.budget.spent
    assert (reserved["model_requests"], reserved["output_tokens"]) == (1, 100)
    assert reserved["input_tokens"] > 10
    model.gate.set()
    await running
    assert await spent(driven) == {"model_requests": 1, "input_tokens": 10, "output_tokens": 20}


async def test_a_request_whose_driver_died_is_charged_all_it_had_reserved(
    driven: Stage, model: Said
) -> None:
    await limit(driven, output_tokens=250)
    reserved = {"model_requests": 1, "input_tokens": 7, "output_tokens": 100}
    for _ in range(2):
        start = {"through": 2, "reserved": reserved}
        await driven.driver.append(New("span.model_request_start", start))
    await run(driven, model)
    assert model.asked == 0
    ended = await reason(driven)
    assert (ended["type"], ended["limit"]) == ("budget_reached", "output_tokens")
    assert await spent(driven) == {"model_requests": 2, "input_tokens": 14, "output_tokens": 200}


async def test_a_refused_request_costs_no_tokens(driven: Stage, model: Said) -> None:
    await limit(driven, output_tokens=150)
    model.replies = [
        Failed("model_overloaded_error", "busy", retryable=True, retry_after=0.0),
        Reply([{"type": "text", "text": "hi"}], "end_turn", USAGE),
    ]
    await run(driven, model)
    assert await spent(driven) == {"model_requests": 2, "input_tokens": 10, "output_tokens": 20}
    assert await reason(driven) == {"type": "end_turn"}


async def test_a_message_to_a_session_without_budget_is_seen_and_answered_by_nobody(
    driven: Stage, model: Said
) -> None:
    await limit(driven, model_requests=1)
    await run(driven, model)
    said = {"content": [{"type": "text", "text": "more"}]}
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.wants_model())
    await run(driven, model)
    assert (model.asked, (await reason(driven))["type"]) == (1, "budget_reached")


async def test_limits_that_are_none_are_passed_over_and_told(driven: Stage, model: Said) -> None:
    await limit(driven, model_requests=1)
    await driven.driver.append(New("session.updated", {"limits": {"model_requests": "all"}}))
    model.replies = [uses("one")]
    await run(driven, model)
    assert model.asked == 1
    errors = [data["error"]["type"] for data in await driven.datas() if "error" in data]
    assert errors == ["malformed_event_error"]
