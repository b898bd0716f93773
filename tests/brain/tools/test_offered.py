"""A tool's name says which hand it runs on."""

import json
from typing import Any

from brain.tools.offered import context_tools, meant, no_tool, offered
from carpal.v1 import hand_pb2
from tests.brain.logs import Log

BASH = {"name": "bash", "description": "runs", "input_schema": {"type": "object"}}


def told(hand: str) -> dict[str, Any]:
    """A hand's tools in the log."""
    return {"hand": hand, "type": "process", "tools": [BASH]}


def test_the_default_hands_tools_keep_their_names_and_others_have_their_hands_before() -> None:
    log = Log()
    log.add("context.tools", told("build"))
    log.add("context.tools", told("shell"))
    tools = offered(log.transcript)
    assert [tool["name"] for tool in tools] == ["bash", "build__bash"]
    assert tools[1]["description"] == "On hand 'build': runs"
    assert all(tool["input_schema"] == {"type": "object"} for tool in tools)


def test_a_hand_whose_tools_nobody_told_offers_none() -> None:
    assert offered(Log().transcript) == []


def test_a_name_means_the_hand_and_tool_that_were_offered_by_it() -> None:
    transcript = Log().transcript
    assert meant(transcript, "bash") == ("shell", "bash")
    assert meant(transcript, "build__bash") == ("build", "bash")
    assert meant(transcript, "shell__bash") == ("shell", "bash")


def test_a_name_nobody_offered_means_the_default_hand() -> None:
    transcript = Log().transcript
    assert meant(transcript, "nowhere__bash") == ("shell", "nowhere__bash")
    assert meant(transcript, "__") == ("shell", "__")


def test_what_a_daemon_says_of_a_type_becomes_an_event() -> None:
    tool = hand_pb2.ToolInfo(
        name="bash", description="runs", input_schema=json.dumps(BASH["input_schema"]).encode()
    )
    info = hand_pb2.HandTypeInfo(type="process", tools=[tool])
    assert context_tools("shell", info) == told("shell")


def test_a_name_that_is_no_tools_is_said_once_it_is_known_what_each_hand_has() -> None:
    log = Log()
    assert no_tool(log.transcript, "nope") == "", "the hand is asked: nobody knows what it has"
    log.add("context.tools", told("shell"))
    log.add("context.tools", told("build"))
    said = "there is no tool 'nope'; there are: bash, build__bash"
    assert no_tool(log.transcript, "nope") == said
    for name in ("bash", "shell__bash", "build__bash", "brain__anything"):
        assert no_tool(log.transcript, name) == ""
