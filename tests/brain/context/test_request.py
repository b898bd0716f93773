"""The next request: a function of the transcript, the same bytes each time."""

from brain.context.request import digest, next_reply
from tests.brain.logs import LOG_TOOLS, Log

TOOL = {"name": "bash", "description": "d", "input_schema": {"type": "object"}}


def test_what_was_sent_has_one_digest_whatever_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_it_holds_the_system_the_tools_and_everything_said() -> None:
    log = Log()
    log.add("context.tools", {"hand": "shell", "type": "process", "tools": [TOOL]})
    log.add("context.tools", {"hand": "build", "type": "process", "tools": [TOOL]})
    log.say("go")
    call = next_reply(log.transcript)
    assert [block["text"] for block in call.request["system"]] == ["be brief"]
    assert [tool["name"] for tool in call.request["tools"]] == ["bash", "build__bash", *LOG_TOOLS]
    assert call.through == log.transcript.head
    assert digest(call.request) == digest(next_reply(log.transcript).request)
