"""Cache breakpoints: few, at what the next request begins with too."""

from brain.context.cache import marked
from brain.context.request import next_reply
from tests.brain.context.chats import log_with, prefixes, whole_of, work
from tests.brain.logs import Log

TOOL = {"name": "bash", "description": "d", "input_schema": {"type": "object"}}


def test_each_request_has_the_one_before_it_as_a_prefix_up_to_a_breakpoint() -> None:
    log = log_with(policy="whole")
    log.add("context.tools", {"hand": "shell", "type": "process", "tools": [TOOL]})
    log.say("go")
    before = work(log, 1)
    for _ in range(5):
        request = work(log, 1, calls=30)
        assert len(prefixes(request)) <= 4
        assert whole_of(before) in prefixes(request)
        assert prefixes(before)[0] == prefixes(request)[0], "tools and system"
        before = request


def test_a_message_that_comes_while_tools_run_changes_nothing_before_it() -> None:
    log = log_with(policy="whole")
    log.say("go")
    before = next_reply(log.transcript).request
    (call,) = log.reply(log.ask(), "looking", calls=("one",))
    log.say("and hurry")
    log.result(call)
    assert whole_of(before) in prefixes(next_reply(log.transcript).request)


def test_without_a_system_text_the_tools_have_the_breakpoint() -> None:
    turn = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    request = marked({"tools": [TOOL, TOOL], "messages": [turn]})
    assert "cache_control" in request["tools"][-1]
    assert "cache_control" not in request["tools"][0]
    assert len(prefixes(request)) == 2


def test_what_was_given_is_not_changed() -> None:
    log = Log()
    log.say("go")
    first = next_reply(log.transcript)
    again = next_reply(log.transcript)
    assert first.request == again.request
    assert all("cache_control" not in e.data["content"][0] for e in log.transcript.inputs)
