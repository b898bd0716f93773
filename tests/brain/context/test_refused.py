"""After a refusal: neither the refused reply nor what it was to answer is said again."""

from typing import Any

import pytest

from brain.context.request import next_reply
from tests.brain.logs import AGENT, Log

POLICIES = ("compact", "whole", "trim", "retrieve", "reset")


def log_of(policy: str) -> Log:
    """A log of an agent with a context policy."""
    log = Log()
    log.add("session.updated", {"agent": AGENT | {"context": {"policy": policy}}})
    return log


def messages(log: Log) -> list[Any]:
    """What the next request says, without what marks the cache."""

    def plain(block: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in block.items() if key != "cache_control"}

    turns = next_reply(log.transcript).request["messages"]
    return [(turn["role"], [plain(block) for block in turn["content"]]) for turn in turns]


def text(words: str) -> dict[str, str]:
    """A block."""
    return {"type": "text", "text": words}


def left_out(position: int) -> dict[str, str]:
    """What stands for an event that a model refused to go on from."""
    why = "[left out: the model refused to go on from this; it is at position"
    return text(f"{why} {position} of the session's log]")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("words", [("I will",), ()])
def test_a_refused_message_and_what_the_model_said_to_it_are_not_said_again(
    policy: str, words: tuple[str, ...]
) -> None:
    log = log_of(policy)
    log.say("hi")
    log.reply(log.ask(), "hello")
    log.say("the bad one")
    position = log.transcript.head
    log.reply(log.ask(), *words, stop="refusal")
    log.say("something else")
    assert messages(log) == [
        ("user", [text("hi")]),
        ("assistant", [text("hello")]),
        ("user", [left_out(position), text("something else")]),
    ]


def test_a_result_that_the_model_refused_to_go_on_from_keeps_its_place_and_its_call() -> None:
    log = log_of("compact")
    log.say("look at the page")
    (call,) = log.reply(log.ask(), calls=("cat page",), stop="tool_use")
    log.result(call, "what nobody wants to read")
    position = log.transcript.head
    (never,) = log.reply(log.ask(), "and", calls=("rm page",), stop="refusal")
    log.result(never, "the model refused to go on", "cancelled")
    log.say("then leave it")
    said = messages(log)
    assert [role for role, _ in said] == ["user", "assistant", "user"]
    assert said[1][1][0]["id"] == call
    result, *rest = said[2][1]
    assert (result["tool_use_id"], result["content"]) == (call, [left_out(position)])
    assert rest == [text("then leave it")]


def test_a_second_refusal_leaves_out_no_more_than_what_it_was_of() -> None:
    log = log_of("compact")
    for said in ("one", "two"):
        log.say(said)
        log.reply(log.ask(), stop="refusal")
    log.say("three")
    ((role, blocks),) = messages(log)
    assert (role, len(blocks), blocks[-1]) == ("user", 3, text("three"))


def test_the_request_that_was_refused_is_made_again_as_it_was() -> None:
    log = log_of("compact")
    log.say("the bad one")
    before = messages(log)
    log.ask()
    assert messages(log) == before
