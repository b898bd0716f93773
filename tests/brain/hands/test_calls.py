"""A takeover: the epoch is claimed at every hand, and what the log has is acknowledged."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from brain.hands.calls import Calls
from brain.session.entries import New
from carpal.v1 import hand_pb2
from tests.brain.stage import UNLINKED, WAIT, Stage, emit, result


async def test_a_new_driver_claims_every_live_hand_and_frees_what_the_log_has(
    driven: Stage,
) -> None:
    await driven.hand()
    done = await driven.call()
    driven.hands.script["acknowledge"] = [UNLINKED]  # the earlier driver died before it
    await driven.settle(done)
    driven.hands.asked.clear()
    async with asyncio.timeout(WAIT):
        await Calls(driven.driver, driven.fleet, driven.hub).claim_all()
    assert driven.hands.arms() == ["claim", "acknowledge"]
    assert list(driven.hands.asked_for("acknowledge")[0].call_ids) == [done]


async def test_a_hand_out_of_reach_is_claimed_before_its_next_call(driven: Stage) -> None:
    await driven.hand()
    driven.hands.linked = False
    async with asyncio.timeout(WAIT):
        await driven.calls.claim_all()
    driven.hands.linked = True
    await driven.settle(await driven.call())
    assert driven.hands.arms() == ["claim", "execute", "acknowledge"]


async def test_calls_of_one_hand_run_in_order_and_a_slow_hand_holds_up_no_other(
    driven: Stage,
) -> None:
    two = {"shell": {"type": "process"}, "other": {"type": "process"}}
    await driven.driver.append(New("session.updated", {"hands": two}))
    await driven.hand()
    (
        slow,
        next_,
    ) = await driven.call(), await driven.call()
    request = driven.driver.transcript.calls[slow].request_id
    use = {"name": "bash", "input": {}, "hand": "other", "model_request_start_id": request}
    await driven.driver.append(New("agent.tool_use", use, id="elsewhere"))
    held = asyncio.Event()

    async def wait(_: Any) -> AsyncGenerator[Any, None]:
        await held.wait()
        yield result("slow")

    driven.hands.script["execute"] = [wait]
    settling = asyncio.create_task(driven.settle(slow, next_, "elsewhere"))
    calls = driven.driver.transcript.calls
    async with asyncio.timeout(WAIT):
        await driven.driver.until(lambda t: t.calls["elsewhere"].result is not None)
        assert calls[slow].result is None
        assert calls[next_].result is None
        held.set()
        await settling
    assert [r.call_id for r in driven.hands.asked_for("execute")][-1] == next_


async def test_a_claim_carries_the_epoch_and_the_workspace(driven: Stage) -> None:
    await driven.hand()
    await driven.calls.claim_all()
    (claim,) = driven.hands.asked_for("claim")
    assert claim == hand_pb2.ClaimRequest(
        driver=hand_pb2.Driver(session_id="sesn_1", epoch=1, workspace="default"),
        hand_id="hand_1",
    )


async def allow(driven: Stage, call_id: str) -> None:
    """A person does, and the driver has seen it."""
    said = {"tool_use_id": call_id, "result": "allow"}
    head = driven.driver.transcript.head
    await emit(driven.sessions, "sesn_1", "user.tool_confirmation", said)
    await driven.driver.until(lambda t: t.head > head)
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("asks", "approved"), [((2,), (2,)), ((1, 2), (2, 1))], ids=["the third", "the last one first"]
)
async def test_calls_of_one_hand_run_in_order_also_once_a_person_allowed_some(
    driven: Stage, asks: tuple[int, ...], approved: tuple[int, ...]
) -> None:
    request, ids = "asked", ["one", "two", "three"]
    use = {"name": "bash", "input": {}, "hand": "shell", "model_request_start_id": request}
    await driven.driver.append(
        New("span.model_request_start", {"through": 1}, id=request),
        *(
            New(
                "agent.tool_use",
                use | {"evaluated_permission": "ask" if n in asks else "allow"},
                id=call_id,
            )
            for n, call_id in enumerate(ids)
        ),
    )
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> AsyncGenerator[Any, None]:
        begun.set()
        await go_on.wait()
        yield result("slow")

    driven.hands.script["execute"] = [wait]
    settling = asyncio.create_task(driven.settle(*ids))
    async with asyncio.timeout(WAIT):
        await begun.wait()
        for n in approved:
            await allow(driven, ids[n])
        go_on.set()
        await settling
    assert [each.call_id for each in driven.hands.asked_for("execute")] == ids
