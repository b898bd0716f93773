"""Calls of the brain's own tools, answered from the log in sessiond."""

import asyncio
from typing import Any

import pytest

from brain.models.model import Reply
from brain.runner import Runner
from brain.session.entries import New
from carpal.ids import new_id
from carpal.v1 import hand_pb2, session_pb2
from tests.brain.said import Said
from tests.brain.stage import WAIT, Stage, create, emit

AGENT = {"name": "a", "model": "m", "tools": {"session_log": True}}


async def ask(stage: Stage, tool: str, given: Any) -> dict[str, Any]:
    """What the model is given for a call of an own tool."""
    call_id = await made(stage, tool, given)
    (result,) = await stage.settle(call_id)
    return result


async def made(stage: Stage, tool: str, given: Any) -> str:
    """A call of an own tool that the model made."""
    request, call_id = new_id("sevt"), new_id("sevt")
    through = stage.driver.transcript.head
    use = {"name": tool, "hand": "brain", "input": given, "model_request_start_id": request}
    await stage.driver.append(
        New("span.model_request_start", {"through": through}, id=request),
        New("agent.tool_use", use, id=call_id),
        New("span.model_request_end", {"model_request_start_id": request}),
    )
    return call_id


def text(result: dict[str, Any]) -> str:
    """What it says."""
    return str(result["content"][0]["text"])


@pytest.fixture
async def reading(driven: Stage) -> Stage:
    """A session whose agent may read its log."""
    await driven.driver.append(New("session.updated", {"agent": AGENT}))
    return driven


async def test_the_model_searches_and_reads_its_own_log(reading: Stage) -> None:
    say = {"content": [{"type": "text", "text": "the password is swordfish"}]}
    await emit(reading.sessions, "sesn_1", "user.message", say)
    await reading.driver.until(lambda t: t.head == 4)
    found = await ask(reading, "session_search", {"words": "password"})
    assert (found["outcome"], found["is_error"], found["again"]) == ("ok", False, True)
    assert text(found).startswith("4 user.message ")
    assert "the password is swordfish" in text(found)
    read = text(await ask(reading, "session_read", {"around": 4, "count": 1}))
    assert read.splitlines()[1] == "the password is swordfish"
    assert not reading.hands.asked, "nothing leaves"


async def test_what_the_transcript_no_longer_holds_is_read_all_the_same(reading: Stage) -> None:
    reading.driver.transcript.inputs.clear()
    assert "hi" in text(await ask(reading, "session_read", {"after": 0, "count": 2}))
    assert "hi" in text(await ask(reading, "session_search", {"type": "user.*"}))


async def test_slices_are_newest_before_after_and_around(reading: Stage) -> None:
    for n in range(4, 10):
        await reading.driver.append(
            New("user.message", {"content": [{"type": "text", "text": f"m{n}"}]})
        )
    head = reading.driver.transcript.head

    async def read(**given: int) -> str:
        return text(await ask(reading, "session_read", given)).splitlines()[-1]

    assert (await read(after=4, count=2)).startswith("[events 5 to 6 of ")
    assert (await read(before=4, count=2)).startswith("[events 2 to 3 of ")
    assert (await read(around=5, count=3)).startswith("[events 4 to 6 of ")
    assert (await read(around=1, count=3)).startswith("[events 1 to 3 of ")
    assert head == 9
    newest = await read(count=1)
    assert newest.startswith(f"[events {reading.driver.transcript.head - 1} to ")


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("session_read", {"around": 900}, "around: must be 1 to"),
        ("session_read", {"after": 900}, "after: must be below"),
        ("session_read", {"around": 1, "count": 1, "offset": 99999}, "offset: must be below"),
        ("session_search", {"type": "user.mesage"}, "there is agent.message"),
        ("session_search", {"type": "users.*"}, "no event is of type 'users.*'"),
        ("session_read", {"session_id": "sesn_2"}, "session_id: is no key"),
        ("session_read", "sesn_2", "input: must be an object"),
        ("tool_search", {}, "words: say what"),
        ("nothing", {}, "there is brain__session_search, brain__session_read, brain__tool_search"),
    ],
)
async def test_a_bad_call_is_a_result_that_says_what_to_do(
    reading: Stage, tool: str, given: Any, words: str
) -> None:
    result = await ask(reading, tool, given)
    assert (result["outcome"], result["is_error"]) == ("error", True)
    assert words in text(result)


async def test_nothing_of_another_session_is_reached(reading: Stage) -> None:
    await create(reading.sessions, "sesn_2")
    say = {"content": [{"type": "text", "text": "a secret of sesn_2"}]}
    await emit(reading.sessions, "sesn_2", "user.message", say)
    found = text(await ask(reading, "session_search", {"words": "secret"}))
    assert found.startswith("[nothing found]")
    for field in ("session_id", "session", "source"):
        refused = await ask(reading, "session_read", {field: "sesn_2"})
        assert refused["is_error"]


async def test_a_redacted_event_says_so(reading: Stage) -> None:
    say = {"content": [{"type": "text", "text": "swordfish"}]}
    await emit(reading.sessions, "sesn_1", "user.message", say)
    await reading.driver.until(lambda t: t.head == 4)
    stub = await reading.sessions.operator()
    asked = session_pb2.RedactEventRequest(session_id="sesn_1", position=4, reason="secret")
    await stub.RedactEvent(asked, timeout=WAIT)
    assert "[redacted]" in text(await ask(reading, "session_read", {"around": 4, "count": 1}))
    found = text(await ask(reading, "session_search", {"words": "swordfish"}))
    assert found.startswith("[nothing found]")


async def test_an_agent_that_may_not_read_its_log_does_not(driven: Stage) -> None:
    agent = AGENT | {"tools": {"session_log": False}}
    await driven.driver.append(New("session.updated", {"agent": agent}))
    result = await ask(driven, "session_read", {})
    assert result["is_error"]
    assert "may not read its session's log" in text(result)


async def test_a_call_that_an_earlier_driver_left_open_is_answered_again(reading: Stage) -> None:
    call_id = await made(reading, "session_read", {"after": 0, "count": 1})
    reading.driver.started_at = reading.driver.transcript.head
    (result,) = await reading.settle(call_id)
    assert result["outcome"] == "ok"


async def test_an_interrupted_call_is_cancelled(reading: Stage) -> None:
    call_id = await made(reading, "session_read", {})
    await reading.interrupt()
    await reading.driver.until(lambda t: bool(t.interrupted))
    (result,) = await reading.settle(call_id)
    assert result["outcome"] == "cancelled"


async def test_a_search_looks_through_a_long_log_in_bounded_answers(reading: Stage) -> None:
    for _ in range(3):
        say = [New("user.message", {"content": [{"type": "text", "text": "dull"}]})] * 500
        await reading.driver.append(*say)
    found = text(await ask(reading, "session_search", {"words": "hi", "type": "user.message"}))
    assert found.startswith("2 user.message")
    many = text(await ask(reading, "session_search", {"words": "dull", "limit": 50}))
    assert many.count("\n") == 50
    assert len(many) < 32 * 1024
    before = int(many.rpartition("before=")[2].rstrip("]"))
    more = text(await ask(reading, "session_search", {"words": "dull", "before": before}))
    assert more.splitlines()[0].startswith(f"{before - 1} user.message")


async def test_what_a_search_for_tools_finds_is_loaded_in_the_log_once(reading: Stage) -> None:
    tools = [
        {"name": f"t{n}", "description": f"Does {n}", "input_schema": {"type": "object"}}
        for n in range(50)
    ]
    hands = {"shell": {"type": "process"}, "web": {"type": "process"}}
    await reading.driver.append(
        New("session.updated", {"hands": hands}),
        New("context.tools", {"hand": "web", "type": "process", "tools": tools}),
    )
    found = await ask(reading, "tool_search", {"words": "does 7", "limit": 1})
    assert text(found).startswith("web__t7: Does 7\n")
    named = {"names": ["web__t7", "web__t9", "nope"]}
    assert "[no tool is named nope]" in text(await ask(reading, "tool_search", named))
    assert reading.driver.transcript.loaded == ["web__t7", "web__t9"]
    loaded = [d for d in await reading.datas() if "names" in d]
    assert [d["names"] for d in loaded] == [["web__t7"], ["web__t9"]]


async def test_a_log_that_names_a_hand_brain_is_refused_in_words(driven: Stage) -> None:
    named = {"hands": {"brain": {"type": "process"}}}
    await driven.driver.append(New("session.updated", named))
    async with asyncio.timeout(WAIT):
        await Runner(driven.driver, driven.fleet, driven.hub, Said()).run()
    assert (await driven.kinds())[-2:] == ["session.error", "session.status_idle"]
    error = (await driven.datas())[-2]["error"]
    assert error["type"] == "agent_invalid_error"
    assert "hands.brain: is the brain's own name: choose another" in error["message"]


async def test_a_deferred_tool_that_was_not_loaded_runs_on_its_hand(driven: Stage) -> None:
    many = [hand_pb2.ToolInfo(name=f"t{n}", input_schema=b'{"type":"object"}') for n in range(50)]
    kind = hand_pb2.HandTypeInfo(type="process", tools=many)
    driven.hands.script["describe"] = [[hand_pb2.DescribeResponse(types=[kind])]]
    model = Said()
    use = {"type": "tool_use", "id": "t", "name": "t7", "input": {}}
    model.replies = [Reply([use], "tool_use", {})]
    async with asyncio.timeout(WAIT):
        await Runner(driven.driver, driven.fleet, driven.hub, model).run()
    (asked,) = driven.hands.asked_for("execute")
    assert asked.name == "t7"
