"""A tool's name says which hand it runs on."""

import copy
import json
import random
from typing import Any

import pytest

from brain.permissions import evaluate
from brain.tools.names import tool_name
from brain.tools.offered import context_tools, meant, no_tool, offered, permitted
from carpal.status import Reason
from carpal.v1 import hand_pb2
from tests.brain.logs import LOG_TOOLS, Log
from tests.pace import SEED

BASH = {"name": "bash", "description": "runs", "input_schema": {"type": "object"}}


def told(hand: str) -> dict[str, Any]:
    """A hand's tools in the log."""
    return {"hand": hand, "type": "process", "tools": [BASH]}


def test_the_default_hands_tools_keep_their_names_and_others_have_their_hands_before() -> None:
    log = Log()
    log.add("context.tools", told("build"))
    log.add("context.tools", told("shell"))
    tools = offered(log.transcript)
    assert [tool["name"] for tool in tools] == ["bash", "build__bash", *LOG_TOOLS]
    assert tools[1]["description"] == "On hand 'build': runs"
    assert all(tool["input_schema"] == {"type": "object"} for tool in tools[:2])


def test_a_hand_whose_tools_nobody_told_offers_none() -> None:
    assert [tool["name"] for tool in offered(Log().transcript)] == LOG_TOOLS


def test_a_name_means_the_hand_and_tool_that_were_offered_by_it() -> None:
    transcript = Log().transcript
    assert meant(transcript, "bash") == ("shell", "bash")
    assert meant(transcript, "build__bash") == ("build", "bash")
    assert meant(transcript, "shell__bash") == ("shell", "bash")


def careful() -> Log:
    """A log whose agent asks for each tool, and has no other but two."""
    log = Log()
    odd = {**BASH, "name": "very.odd"}
    log.add("context.tools", {**told("shell"), "tools": [BASH, odd]})
    log.add("context.tools", told("build"))
    said = {"bash": "always_ask", "very_odd": "always_ask", "build__bash": "always_ask"}
    offer = [name for name in said if name != "build__bash"]
    agent = {"model": "m", "permissions": {"tools": said}, "tools": {"offer": offer}}
    log.add("session.updated", {"agent": agent})
    return log


@pytest.mark.parametrize("name", ["bash", "shell__bash"])
def test_no_other_name_of_a_tool_is_a_way_around_its_permission(name: str) -> None:
    assert permitted(careful().transcript, name) == ("shell", "bash", "ask")


def test_whatever_name_leads_to_a_tool_the_permission_is_that_of_its_offered_name() -> None:
    transcript = careful().transcript
    chance = random.Random(SEED)
    parts = ["shell", "build", "brain", "bash", "very.odd", "very_odd", "__", "_", ".", "mcp", "B"]
    for _ in range(2000):
        name = "".join(chance.choices(parts, k=chance.randint(1, 5)))
        hand, tool, permission = permitted(transcript, name)
        wanted = evaluate(transcript.agent, tool_name(transcript, hand, tool), hand)
        assert permission == wanted, name
        if (hand, tool) in {("shell", "bash"), ("shell", "very.odd")}:
            assert permission == "ask", name
        elif hand == "brain":
            assert permission == "allow", name
        else:
            assert permission == "deny" or tool == "very_odd", name


def test_a_name_nobody_offered_means_the_default_hand() -> None:
    transcript = Log().transcript
    assert meant(transcript, "nowhere__bash") == ("shell", "nowhere__bash")
    assert meant(transcript, "__") == ("shell", "__")


def test_a_default_hands_tool_by_the_name_of_another_hands_is_left_out_and_takes_no_call() -> None:
    log = Log()
    taken = [{**BASH, "name": name} for name in ("build__bash", "build__other", "build._odd")]
    own = {**BASH, "name": "nowhere__bash"}
    log.add("context.tools", {**told("shell"), "tools": [*taken, own]})
    names = [tool["name"] for tool in offered(log.transcript)]
    assert names == ["nowhere__bash", *LOG_TOOLS], "also while nothing is known of the other"
    log.add("context.tools", told("build"))
    tools = offered(log.transcript)
    assert [tool["name"] for tool in tools] == ["nowhere__bash", "build__bash", *LOG_TOOLS]
    assert tools[1]["description"] == "On hand 'build': runs"
    assert permitted(log.transcript, "build__bash")[:2] == ("build", "bash")
    for name in ("build__other", "shell__build__bash", "shell__build._odd"):
        missing = no_tool(log.transcript, name)
        assert missing is not None
        assert missing[1] is Reason.TOOL_NOT_FOUND, name


def test_what_a_daemon_says_of_a_type_becomes_an_event() -> None:
    tool = hand_pb2.ToolInfo(
        name="bash", description="runs", input_schema=json.dumps(BASH["input_schema"]).encode()
    )
    info = hand_pb2.HandTypeInfo(type="process", tools=[tool])
    assert context_tools("shell", info) == told("shell")


def test_a_name_that_is_no_tools_is_said_once_it_is_known_what_each_hand_has() -> None:
    log = Log()
    assert no_tool(log.transcript, "nope") is None, "the hand is asked: nobody knows what it has"
    log.add("context.tools", told("shell"))
    log.add("context.tools", told("build"))
    said = "there is no tool 'nope'; there are: bash, build__bash"
    assert no_tool(log.transcript, "nope") == (said, Reason.TOOL_NOT_FOUND)
    for name in ("bash", "shell__bash", "build__bash", "brain__anything"):
        assert no_tool(log.transcript, name) is None


def test_a_tool_that_a_machines_owner_forbids_is_said_to_be_that_and_not_to_be_none() -> None:
    info = hand_pb2.HandTypeInfo(type="process", forbidden_tools=["bash", "no name", "bash"])
    log = Log()
    log.add("context.tools", context_tools("shell", info))
    log.add("context.tools", told("build"))
    for name in ("bash", "shell__bash"):
        missing = no_tool(log.transcript, name)
        assert missing == (
            "the owner of the machine forbids tool 'bash' of hand 'shell'",
            Reason.POLICY_FORBIDS,
        )
    assert no_tool(log.transcript, "build__bash") is None
    log.add("context.tools", {**told("shell"), "tools": [], "forbidden": 7})
    missing = no_tool(log.transcript, "bash")
    assert missing is not None
    assert missing[1] is Reason.TOOL_NOT_FOUND, "what is no list forbids nothing"


def test_what_is_offered_follows_the_log_however_often_it_was_asked_before() -> None:
    chance = random.Random(SEED)
    log = Log()
    for _ in range(200):
        hand = chance.choice(["shell", "build", "web"])
        names = chance.sample(["bash", "read", "write"], chance.randint(0, 3))
        hands = {each: {"type": "process"} for each in chance.sample(["shell", "build", "web"], 2)}
        tools = {"defer_above": chance.randint(0, 4), "offer": ["bash", "*__*"]}
        match chance.randint(0, 3):
            case 0:
                log.add(
                    "context.tools", {**told(hand), "tools": [{**BASH, "name": n} for n in names]}
                )
            case 1:
                log.add("session.updated", {"agent": {"model": "m", "tools": tools}})
            case 2:
                log.add("session.updated", {"hands": hands})
            case 3:
                log.add("context.tools_loaded", {"names": [f"{hand}__{name}" for name in names]})
        # Nothing is known of a copy, which is made anew from all that the transcript holds.
        anew = copy.copy(log.transcript)
        assert offered(log.transcript) == offered(anew)
        assert meant(log.transcript, f"{hand}__bash") == meant(anew, f"{hand}__bash")
