"""A drive: intent before, outcome after, and no event that is not true."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from brain import harness
from brain.effects import Effect, Emit, Failed, Finish, HarnessType, Provision, ReadEvents, Sleep
from brain.runner import Runner
from brain.session.entries import New
from brain.session.transcript import Transcript
from carpal.errors import CarpalError
from carpal.v1 import hand_pb2, session_pb2, types_pb2
from tests.brain.said import Said, uses
from tests.brain.stage import WAIT, Stage, emit


@pytest.fixture
def model() -> Said:
    return Said()


async def run(driven: Stage, model: Said) -> int:
    """One drive; what it processed."""
    runner = Runner(driven.driver, driven.fleet, driven.hub, model)
    async with asyncio.timeout(WAIT):
        return (await runner.run()).processed


def data(driven: Stage, kind: str) -> list[dict[str, Any]]:
    """Of the transcript's inputs of a type."""
    return [e.data for e in driven.driver.transcript.inputs if e.type == kind]


async def test_a_turn_is_in_the_log_in_the_order_it_happened(driven: Stage, model: Said) -> None:
    model.replies = [uses("one", "two")]
    processed = await run(driven, model)
    assert await driven.kinds() == [
        "session.updated",
        "user.message",
        "session.status_running",
        "context.harness",
        "context.tools",
        "span.model_request_start",
        "agent.tool_use",
        "agent.tool_use",
        "span.model_request_end",
        "hand.provision_requested",
        "hand.provisioned",
        "agent.tool_result",
        "agent.tool_result",
        "span.model_request_start",
        "agent.message",
        "span.model_request_end",
        "session.status_idle",
    ]
    assert processed == 16, "the head at which the harness finished"
    assert [use.input for use in driven.driver.transcript.calls.values()] == [
        {"command": "one"},
        {"command": "two"},
    ]


async def test_without_work_nothing_is_appended(driven: Stage, model: Said) -> None:
    await run(driven, model)
    before = await driven.kinds()
    assert await run(driven, model) == len(before)
    assert (await driven.kinds(), model.asked) == (before, 1)


@pytest.fixture
def groups(driven: Stage, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The types of each group that is appended."""
    found: list[list[str]] = []
    append = driven.driver._appender.append

    async def noted(session_id: str, events: Sequence[New], epoch: int, **more: Any) -> int:
        found.append([event.type for event in events])
        return await append(session_id, events, epoch, **more)

    monkeypatch.setattr(driven.driver._appender, "append", noted)
    return found


async def say_more(driven: Stage) -> int:
    """A further message; the log's head with it."""
    said = {"content": [{"type": "text", "text": "more"}]}
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.wants_model())
    return driven.driver.transcript.head


async def test_that_a_turn_begins_is_one_group_with_its_first_request(
    driven: Stage, model: Said, groups: list[list[str]]
) -> None:
    await run(driven, model)
    groups.clear()
    head = await say_more(driven)
    await run(driven, model)
    assert groups[0] == ["session.status_running", "span.model_request_start"]
    start = (await driven.datas())[head + 1]
    assert start["through"] == head, "the request answers what was there, and is made of no more"


async def test_a_turn_that_calls_no_model_says_that_it_began_before_it_says_that_it_ended(
    driven: Stage, model: Said
) -> None:
    await run(driven, model)
    await driven.driver.append(New("session.updated", {"limits": {"model_requests": 1}}))
    await say_more(driven)
    await run(driven, model)
    assert (await driven.kinds())[-2:] == ["session.status_running", "session.status_idle"]
    assert model.asked == 1


async def test_a_turn_after_one_that_failed_is_begun_before_anything_is_decided(
    driven: Stage, model: Said, groups: list[list[str]]
) -> None:
    model.replies = [Failed("model_overloaded_error", "busy", retryable=False)]
    await run(driven, model)
    assert driven.driver.transcript.models.of_last_turn()
    groups.clear()
    head = await say_more(driven)
    await run(driven, model)
    assert groups[:2] == [["session.status_running"], ["span.model_request_start"]]
    assert (await driven.datas())[head + 1]["through"] == head + 1


async def test_tools_are_told_once_and_again_when_they_change(driven: Stage, model: Said) -> None:
    await run(driven, model)
    said = {"content": [{"type": "text", "text": "more"}]}
    for count in (1, 2):
        await emit(driven.sessions, "sesn_1", "user.message", said)
        await driven.driver.until(lambda t: t.wants_model())
        await run(driven, model)
        assert (await driven.kinds()).count("context.tools") == count
        driven.fleet.directory.daemons["d1"].lease.epoch += 1
        (told,) = driven.hands._describe(hand_pb2.DescribeRequest())
        told.types[0].tools[0].description = "runs, newly"  # type: ignore[attr-defined]
        driven.hands.script["describe"] = [[told]]


async def test_a_call_that_was_cut_off_at_the_limit_is_not_run(driven: Stage, model: Said) -> None:
    model.replies = [uses("whole", "cut", stop_reason="max_tokens")]
    await run(driven, model)
    commands = [request.input for request in driven.hands.asked_for("execute")]
    assert commands == [b'{"command":"whole"}']
    texts = [d["content"][0]["text"] for d in data(driven, "agent.tool_result")]
    assert "cut at max_tokens" in texts[0]


async def test_an_interrupt_ends_the_question_to_the_model_and_the_turn(
    driven: Stage, model: Said
) -> None:
    model.gate.clear()
    running = asyncio.create_task(run(driven, model))
    async with asyncio.timeout(WAIT):
        await model.asking.wait()
        await driven.interrupt()
        await running
    kinds = await driven.kinds()
    assert kinds[-1] == "session.status_idle"
    (request,) = driven.driver.transcript.requests.values()
    assert request.failed
    assert "agent.message" not in kinds


async def test_an_event_that_is_not_what_its_type_says_is_passed_over_and_said_once(
    driven: Stage, model: Said
) -> None:
    await emit(driven.sessions, "sesn_1", "user.message", {"content": 7})
    await driven.driver.until(lambda t: bool(t.malformed))
    await run(driven, model)
    said = {"content": [{"type": "text", "text": "more"}]}
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.wants_model())
    await run(driven, model)
    assert (await driven.kinds()).count("session.error") == 1


async def test_a_hand_nobody_offers_is_said_and_the_model_is_asked_all_the_same(
    driven: Stage, model: Said
) -> None:
    driven.fleet.directory.daemons.clear()
    await run(driven, model)
    kinds = await driven.kinds()
    assert "session.error" in kinds
    assert kinds[-1] == "session.status_idle"
    assert model.asked == 1


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ({"name": "a"}, "model: is missing"),
        ({"model": "m", "limits": {"cents": 5}}, "limits.cents: is no key"),
        ({"model": "m", "permissions": {"default": "ask"}}, "permissions.default: must be"),
        ({"model": "m", "max_tokens": "many"}, "max_tokens: must be a whole number"),
    ],
)
async def test_an_agent_with_a_mistake_is_said_and_the_session_goes_on_once_it_is_corrected(
    driven: Stage, model: Said, agent: dict[str, Any], says: str
) -> None:
    await driven.driver.append(New("session.updated", {"agent": agent}))
    await run(driven, model)
    assert (await driven.kinds())[-2:] == ["session.error", "session.status_idle"]
    error = (await driven.datas())[-2]["error"]
    assert error["type"] == "agent_invalid_error"
    assert says in error["message"]
    assert (model.asked, driven.driver.transcript.has_work()) == (0, False)
    await driven.driver.append(New("session.updated", {"agent": {"model": "m"}}))
    said = {"content": [{"type": "text", "text": "now"}]}
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.wants_model())
    await run(driven, model)
    assert model.asked == 1


async def test_a_drive_that_lost_its_lease_asks_the_model_nothing(
    driven: Stage, model: Said
) -> None:
    driven.driver.lease.lost.set()
    with pytest.raises(ExceptionGroup) as caught:
        await run(driven, model)
    assert caught.group_contains(CarpalError, match="lease")
    assert model.asked == 0


async def test_no_hand_is_claimed_before_the_model_was_asked_unless_a_call_is_open(
    driven: Stage, model: Said
) -> None:
    await driven.hand()
    model.gate.clear()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run(driven, model))
        await model.asking.wait()
        assert "claim" not in driven.hands.arms()
        model.replies = [uses("one")]
        model.gate.set()
        await running
    assert driven.hands.arms().index("claim") < driven.hands.arms().index("execute")


@pytest.mark.parametrize(
    "effect", [Sleep(0.0), Emit("x.note"), ReadEvents(), Provision("shell"), None]
)
async def test_a_harness_that_asks_the_model_nothing_claims_its_hands_all_the_same(
    driven: Stage, model: Said, monkeypatch: pytest.MonkeyPatch, effect: Effect | None
) -> None:
    await driven.hand()

    async def quiet(_: Transcript) -> AsyncGenerator[Effect, Any]:
        if effect is not None:
            yield effect
            async with asyncio.timeout(WAIT):
                while "claim" not in driven.hands.arms():
                    yield Sleep(0.01)
        yield Finish("end_turn")

    monkeypatch.setattr(harness, "load", lambda name: HarnessType("1", quiet))
    await run(driven, model)
    assert "claim" in driven.hands.arms()


async def test_a_name_in_the_agent_that_is_no_tools_is_said_once(
    driven: Stage, model: Said
) -> None:
    """A misspelled `always_ask` asked nobody, and nothing said so."""
    asks = {"bsh": "always_ask", "bash": "always_ask", "web__*": "always_ask"}
    agent = {"model": "m", "permissions": {"tools": asks}, "tools": {"offer": ["bash", "bish"]}}
    await driven.driver.append(New("session.updated", {"agent": agent}))
    await run(driven, model)
    said = {"content": [{"type": "text", "text": "more"}]}
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.wants_model())
    await run(driven, model)
    pairs = zip(await driven.kinds(), await driven.datas(), strict=True)
    (error,) = [each["error"] for kind, each in pairs if kind == "session.error"]
    assert error["type"] == "tool_unknown_error"
    assert "name 'bsh', 'bish', and no hand has" in error["message"]
    assert model.asked == 2


async def test_a_claim_that_waits_does_not_hold_up_the_turn(driven: Stage, model: Said) -> None:
    await driven.hand()

    async def never(_: Any) -> Any:
        await asyncio.Event().wait()
        yield

    driven.hands.script["claim"] = [never]
    await run(driven, model)
    assert (await driven.kinds())[-1] == "session.status_idle"


async def test_a_type_that_is_no_good_is_said_and_parks_no_session_that_names_it(
    driven: Stage, model: Said
) -> None:
    """A schema that is nested too deeply to be read once ended the drive of whoever read it."""
    deep = hand_pb2.ToolInfo(name="bash", input_schema=b"[" * 50_000 + b"]" * 50_000)
    told = hand_pb2.HandTypeInfo(type="process", tools=[deep])
    driven.hands.script["describe"] = [[hand_pb2.DescribeResponse(types=[told])]]
    await run(driven, model)
    kinds = await driven.kinds()
    assert "session.error" in kinds
    assert "context.tools" not in kinds
    assert model.asked == 1


async def test_an_event_that_is_nested_too_deeply_is_passed_over(
    driven: Stage, model: Said
) -> None:
    stub = await driven.sessions.operator()
    deep = b'{"content":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    event = types_pb2.NewEvent(id="deep", type="user.message", data=deep)
    request = session_pb2.EmitEventRequest(session_id="sesn_1", event=event, wake=True)
    await stub.EmitEvent(request, timeout=WAIT)
    await driven.driver.until(lambda t: bool(t.malformed))
    await run(driven, model)
    assert (await driven.kinds())[-1] == "session.status_idle"


async def test_what_was_said_while_the_model_was_asked_ends_one_wait_and_the_next_is_waited(
    driven: Stage, model: Said
) -> None:
    said = {"content": [{"type": "text", "text": "more"}]}
    runner = Runner(driven.driver, driven.fleet, driven.hub, model)
    start = {"through": driven.driver.transcript.head}
    await driven.driver.append(New("span.model_request_start", start))
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.head == 4)
    async with asyncio.timeout(WAIT):
        await runner._sleep(10 * WAIT)
        second = asyncio.create_task(runner._sleep(10 * WAIT))
        await driven.driver.append(New("session.error", {"error": {}}))
        assert not second.done()
        await emit(driven.sessions, "sesn_1", "user.message", said)
        await second
