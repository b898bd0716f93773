"""Hands with tools of their own: made before the model is asked, and pinned in the log."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from brain.runner import Runner
from brain.session.checkpoint import checkpoint, restored
from brain.session.entries import New
from brain.session.own_tools import changes
from brain.tools.offered import offered
from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2
from tests.brain.said import Said, uses
from tests.brain.stage import WAIT, Stage, emit

Schema = Mapping[str, Any]
ANY: Schema = {"type": "object"}
TEXT: Schema = {"type": "object", "properties": {"command": {"type": "string"}}}


@pytest.fixture
def model() -> Said:
    return Said()


@pytest.fixture
def lists(driven: Stage) -> Stage:
    """A session whose hand's type lists tools for each hand."""
    kind = hand_pb2.HandTypeInfo(type="process", capabilities=["lists_tools"])
    driven.hands.script["describe"] = [[hand_pb2.DescribeResponse(types=[kind])] for _ in range(9)]
    return driven


def makes(driven: Stage, *made: Mapping[str, Schema] | Exception) -> None:
    """Each hand made next has these tools, or is not made."""
    driven.hands.script["provision"] = [
        each if isinstance(each, Exception) else [provisioned(each)] for each in made
    ]


def provisioned(tools: Mapping[str, Schema], text: str = "runs") -> hand_pb2.ProvisionResponse:
    infos = [
        hand_pb2.ToolInfo(name=name, description=text, input_schema=json.dumps(schema).encode())
        for name, schema in tools.items()
    ]
    result = hand_pb2.ProvisionResult(journal_id="j", boot_id="b", sequence=2, tools=infos)
    return hand_pb2.ProvisionResponse(result=result)


async def run(driven: Stage, model: Said) -> None:
    async with asyncio.timeout(WAIT):
        await Runner(driven.driver, driven.fleet, driven.hub, model).run()


async def more(driven: Stage) -> None:
    said = {"content": [{"type": "text", "text": "more"}]}
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.wants_model())


async def lose(driven: Stage) -> None:
    (hand,) = driven.driver.transcript.live_hands()
    await driven.driver.append(
        New("hand.lost", {"hand_id": hand.hand_id, "name": hand.name, "reason": "died"})
    )


def told(request: Mapping[str, Any]) -> str:
    """All that the model is told, as text."""
    return json.dumps(request["messages"])


def names(request: Mapping[str, Any]) -> list[str]:
    return [tool["name"] for tool in request.get("tools", ()) if "brain__" not in tool["name"]]


async def test_such_a_hand_is_made_before_the_model_is_asked_and_its_tools_are_offered(
    lists: Stage, model: Said
) -> None:
    makes(lists, {"look": ANY, "act": TEXT})
    model.replies = [uses("one", tool="act")]
    await run(lists, model)
    kinds = await lists.kinds()
    assert kinds.index("hand.provisioned") < kinds.index("span.model_request_start")
    assert "context.tools" not in kinds
    assert names(model.requests[0]) == ["look", "act"]
    (pinned,) = [data["tools"] for data in await lists.datas() if "tools" in data]
    assert [(tool["name"], tool["input_schema"]) for tool in pinned] == [
        ("look", ANY),
        ("act", TEXT),
    ]
    assert [request.name for request in lists.hands.asked_for("execute")] == ["act"]
    assert len(lists.hands.asked_for("provision")) == 1


@pytest.mark.parametrize("left", [{"look": ANY}, {}])
async def test_a_tool_of_its_own_that_a_machines_owner_forbids_is_said_to_be_that(
    lists: Stage, model: Said, left: Mapping[str, Schema]
) -> None:
    made = provisioned(left)
    made.result.forbidden_tools.append("act")
    lists.hands.script["provision"] = [[made]]
    model.replies = [uses("one", tool="act")]
    await run(lists, model)
    (pinned,) = [data for data in await lists.datas() if "boot_id" in data]
    assert pinned["forbidden"] == ["act"]
    assert names(model.requests[0]) == list(left)
    assert "the owner of the machine forbids tool 'act'" in told(model.requests[-1])
    assert lists.hands.asked_for("execute") == []


async def test_the_next_turn_makes_no_hand_for_tools_that_are_known(
    lists: Stage, model: Said
) -> None:
    makes(lists, {"look": ANY})
    await run(lists, model)
    await lose(lists)
    await more(lists)
    await run(lists, model)
    assert len(lists.hands.asked_for("provision")) == 1
    assert names(model.requests[1]) == ["look"]


async def test_another_hand_with_other_tools_is_said_to_the_model_and_in_the_log(
    lists: Stage, model: Said
) -> None:
    makes(lists, {"look": ANY, "act": TEXT, "old": ANY}, {"act": ANY, "look": ANY, "new": ANY})
    await run(lists, model)
    await lose(lists)
    await more(lists)
    model.replies = [uses("one", tool="look")]
    await run(lists, model)
    changed = [d["tools_changed"] for d in await lists.datas() if "tools_changed" in d]
    assert changed == [{"gone": ["old"], "new": ["new"], "changed": ["act"]}]
    assert names(model.requests[-1]) == ["act", "look", "new"]
    assert "gone are old; new are new; another input schema have act" in told(model.requests[-1])
    assert [request.name for request in lists.hands.asked_for("execute")] == ["look"]


async def test_another_hand_with_the_same_tools_is_not_spoken_of(lists: Stage, model: Said) -> None:
    makes(lists, {"look": ANY}, {"look": ANY})
    await run(lists, model)
    await lose(lists)
    await more(lists)
    model.replies = [uses("one", tool="look")]
    await run(lists, model)
    assert not [data for data in await lists.datas() if "tools_changed" in data]
    assert "made anew" not in told(model.requests[-1])


@pytest.mark.parametrize("now", [{"act": ANY}, {"other": ANY}])
async def test_a_call_that_meant_a_tool_as_it_was_is_not_run_on_a_hand_where_it_is_another(
    lists: Stage, model: Said, now: Mapping[str, Schema]
) -> None:
    makes(lists, {"act": TEXT}, now)
    await run(lists, model)
    await lose(lists)
    await more(lists)
    model.replies = [uses("one", tool="act")]
    await run(lists, model)
    assert not lists.hands.asked_for("execute")
    assert "'act' is gone, or takes something else now" in told(model.requests[-1])


async def test_what_a_tool_is_said_to_do_may_change_without_a_call_being_refused(
    lists: Stage, model: Said
) -> None:
    lists.hands.script["provision"] = [
        [provisioned({"act": TEXT})],
        [provisioned({"act": TEXT}, "runs otherwise")],
    ]
    await run(lists, model)
    await lose(lists)
    await more(lists)
    model.replies = [uses("one", tool="act")]
    await run(lists, model)
    assert len(lists.hands.asked_for("execute")) == 1
    assert "described otherwise are act" in told(model.requests[-1])


async def test_a_hand_that_cannot_be_made_is_said_to_the_model_and_tried_again_in_the_next_turn(
    lists: Stage, model: Said
) -> None:
    makes(lists, refuse(Reason.PROVISION_FAILED, "no such program"), {"look": ANY})
    await run(lists, model)
    assert names(model.requests[0]) == []
    assert "could not be made, so its tools are not known: " in told(model.requests[0])
    assert "no such program" in told(model.requests[0])
    await more(lists)
    await run(lists, model)
    assert names(model.requests[1]) == ["look"]


async def test_tools_that_are_none_make_no_hand(lists: Stage, model: Said) -> None:
    makes(lists, {"look": {"type": "array"}})
    await run(lists, model)
    assert "hand.provision_failed" in await lists.kinds()
    assert "the schema's type is not object" in told(model.requests[0])


async def test_a_cut_window_keeps_which_tools_a_hand_has(lists: Stage, model: Said) -> None:
    makes(lists, {"look": ANY})
    await run(lists, model)
    transcript = lists.driver.transcript
    before = offered(transcript)
    state = checkpoint(transcript)
    assert offered(restored(state, 0)) == before
    assert "look" in [tool["name"] for tool in before]


def test_of_tools_that_are_the_same_nothing_is_said() -> None:
    tools = [{"name": "a", "description": "d", "input_schema": {"type": "object"}}]
    assert changes(tools, [dict(tools[0])]) == {}
