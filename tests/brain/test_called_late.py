"""A model call that a harness decided on before a person interrupted is not made, nor charged."""

import pytest

from brain.effects import CallModel, Failed, Purpose
from brain.model_calls import ModelCalls
from tests.brain.said import Said
from tests.brain.stage import Stage

REQUEST = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("purpose", ["reply", "aside", "compaction"])
async def test_a_call_from_before_an_interrupt_asks_nothing_and_costs_nothing(
    driven: Stage, purpose: Purpose
) -> None:
    through = driven.driver.transcript.head
    await driven.interrupt()
    await driven.driver.until(lambda t: t.interrupted > through)
    before, spent = await driven.kinds(), dict(driven.driver.transcript.budget.spent)
    model = Said()
    calls = ModelCalls(driven.driver, driven.hub, model, "odd/1")
    answer = await calls.call(CallModel(REQUEST, "given/1", through, purpose=purpose))
    assert isinstance(answer, Failed)
    assert (answer.kind, answer.retryable, model.asked) == ("interrupted", False, 0)
    assert await driven.kinds() == before
    assert dict(driven.driver.transcript.budget.spent) == spent


async def test_a_call_that_was_decided_after_it_is_made(driven: Stage) -> None:
    await driven.interrupt()
    await driven.driver.until(lambda t: bool(t.interrupted))
    model = Said()
    calls = ModelCalls(driven.driver, driven.hub, model, "odd/1")
    through = driven.driver.transcript.head
    await calls.call(CallModel(REQUEST, "given/1", through, purpose="aside"))
    assert model.asked == 1
