"""Of very many tools the model is offered the basic ones, a search, and what it searched for."""

import json
from typing import Any

from brain.context.request import next_reply
from brain.session.checkpoint import checkpoint, restored
from brain.text import canonical
from brain.tools.offered import deferred, meant, offered
from tests.brain.logs import AGENT, LOG_TOOLS, Log


def tools(hand: str, count: int) -> dict[str, Any]:
    """A hand's tools in the log."""
    named = [
        {"name": f"{hand}{n}", "description": "runs", "input_schema": {"type": "object"}}
        for n in range(count)
    ]
    return {"hand": hand, "type": "process", "tools": named}


def names(log: Log) -> list[str]:
    """What the model is offered, but for the tools that read the log."""
    return [each for tool in offered(log.transcript) if (each := tool["name"]) not in LOG_TOOLS]


def many(agent: dict[str, Any] | None = None, build: int = 50) -> Log:
    """Two tools on the default hand, many on the other."""
    log = Log()
    log.add("session.updated", {"agent": AGENT | (agent or {})})
    log.add("context.tools", tools("shell", 2))
    log.add("context.tools", tools("build", build))
    return log


def test_as_many_tools_as_the_threshold_are_all_offered() -> None:
    log = many(build=38)
    assert len(names(log)) == 40
    assert deferred(log.transcript) == {}


def test_beyond_the_threshold_only_the_default_hands_and_the_search_are_offered() -> None:
    log = many(build=39)
    assert names(log) == ["shell0", "shell1", "brain__tool_search"]
    assert "build" in offered(log.transcript)[-1]["description"]


def test_the_agent_says_the_threshold() -> None:
    assert len(names(many({"tools": {"defer_above": 100}}))) == 52
    few = many({"tools": {"defer_above": 2}}, build=1)
    assert names(few) == ["shell0", "shell1", "brain__tool_search"]
    none = many({"tools": {"defer_above": 0}}, build=1)
    assert names(none) == ["brain__tool_search"]


def test_a_default_hand_that_alone_has_too_many_is_searched_too() -> None:
    log = Log()
    log.add("context.tools", tools("shell", 50))
    assert names(log) == ["brain__tool_search"]


def test_what_was_loaded_is_offered_at_the_end_in_the_order_of_the_log() -> None:
    log = many({"tools": {"session_log": True}})
    before = offered(log.transcript)
    log.add("context.tools_loaded", {"names": ["build__build7"]})
    log.add("context.tools_loaded", {"names": ["build__build3", "build__build7", "gone"]})
    after = offered(log.transcript)
    assert after[: len(before)] == before, "the prefix that is cached"
    assert [tool["name"] for tool in after[len(before) :]] == ["build__build7", "build__build3"]
    assert after[-1]["description"] == "On hand 'build': runs"


def test_a_call_of_a_deferred_tool_that_was_not_loaded_goes_to_its_hand() -> None:
    assert meant(many().transcript, "build__build9") == ("build", "build9")


def test_the_request_up_to_a_position_is_the_same_when_it_is_made_again() -> None:
    log = many()
    log.say("hi")
    sent = canonical(next_reply(log.transcript).request)
    again = many()
    again.say("hi")
    assert canonical(next_reply(again.transcript).request) == sent
    log.add("context.tools_loaded", {"names": ["build__build7"]})
    assert canonical(next_reply(log.transcript).request) != sent


def test_names_that_are_no_texts_load_nothing() -> None:
    log = many()
    log.add("context.tools_loaded", {"names": [7]})
    log.add("context.tools_loaded", {"names": "build__build7"})
    assert log.transcript.loaded == []
    assert len(log.transcript.malformed) == 2


def test_what_the_agent_is_not_offered_is_not_found_either() -> None:
    log = many({"tools": {"offer": ["shell*", "build__build1*"], "defer_above": 5}})
    held = deferred(log.transcript)
    assert len(held) == 11
    assert "build__build2" not in held


def test_what_was_loaded_is_still_offered_to_whoever_wakes_from_a_checkpoint() -> None:
    log = many()
    log.add("context.tools_loaded", {"names": ["build__build7", "build__build3"]})
    before = offered(log.transcript)
    state = checkpoint(log.transcript)
    assert state is not None
    woken = restored(json.loads(json.dumps(state)), 0)
    assert woken.loaded == ["build__build7", "build__build3"]
    assert offered(woken) == before
