"""What a service's own tools did stands in the conversation as it came, but for what was cut."""

from typing import Any

import pytest

from brain.context.request import next_reply
from tests.brain.logs import Log

USE: dict[str, Any] = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
TEXT: dict[str, Any] = {"type": "text", "text": "so"}


def conversation(*replies: tuple[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The assistant's blocks of the next request, without cache breakpoints."""
    log = Log()
    log.say("go")
    for stop, blocks in replies:
        request = log.ask()
        for block in blocks:
            log.add("agent.message", {"content": [block], "model_request_start_id": request})
        log.reply(request, stop=stop)
    log.say("and?")
    return [
        {key: value for key, value in block.items() if key != "cache_control"}
        for message in next_reply(log.transcript).request["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
    ]


def test_uses_and_results_are_passed_back_as_they_came() -> None:
    assert conversation(("end_turn", [USE, FOUND, TEXT])) == [USE, FOUND, TEXT]


def test_a_result_may_come_in_the_reply_after_a_pause() -> None:
    replies = (("pause_turn", [TEXT, USE]), ("end_turn", [FOUND, TEXT]))
    assert conversation(*replies) == [TEXT, USE, FOUND, TEXT]


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
def test_a_use_that_was_cut_before_its_result_is_left_out(stop: str) -> None:
    assert conversation((stop, [TEXT, USE])) == [TEXT]
