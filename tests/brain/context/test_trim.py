"""Trim: bulk of long ago is left out, in steps, and what is left out can be found."""

from typing import Any

from brain.context.request import next_reply
from tests.brain.context.chats import check_fit, log_with, prefixes, whole_of, work

LIMITS: dict[str, Any] = {"policy": "trim", "at_tokens": 12000, "keep_tokens": 2000}


def results(request: dict[str, Any]) -> list[str]:
    """The texts of its tool results."""
    return [
        block["content"][0]["text"]
        for turn in request["messages"]
        for block in turn["content"]
        if block["type"] == "tool_result"
    ]


def test_nothing_is_left_out_while_it_fits() -> None:
    log = log_with(**LIMITS)
    log.say("go")
    last = work(log, 5)
    assert not [text for text in results(last) if "left out" in text]


def test_an_old_result_is_a_stub_that_names_its_position_and_the_newest_stay() -> None:
    log = log_with(**LIMITS)
    log.say("go")
    work(log, 40)
    texts = results(next_reply(log.transcript).request)
    assert texts[-1].startswith("39 x")
    first = next(entry for entry in log.entries if entry.type == "agent.tool_result")
    assert texts[0].startswith("[left out: about ")
    assert f"position {first.position} of the session's log" in texts[0]


def test_old_thinking_is_a_stub_and_that_of_the_newest_reply_is_whole() -> None:
    log = log_with(**LIMITS)
    log.say("go")
    work(log, 40, thinks=True)
    request = next_reply(log.transcript).request
    replies = [turn for turn in request["messages"] if turn["role"] == "assistant"]
    assert replies[0]["content"][0]["text"].startswith("[left out: thinking, at position ")
    assert replies[-1]["content"][0]["signature"] == "s39"


def test_one_turn_of_a_hundred_calls_that_is_larger_than_all_keeps_its_newest_reply() -> None:
    log = log_with(**LIMITS)
    log.say("go")
    work(log, 1, calls=100)
    request = next_reply(log.transcript).request
    check_fit(request)
    assert not [text for text in results(request) if "left out" in text]


def test_the_cut_moves_in_steps_and_between_them_each_request_begins_with_the_last() -> None:
    log = log_with(**LIMITS)
    log.say("go")
    before = work(log, 1)
    steps = 0
    for _ in range(40):
        request = work(log, 1)
        check_fit(request)
        if whole_of(before) in prefixes(request):
            assert whole_of(request).startswith(whole_of(before))
        else:
            steps += 1
        before = request
    assert 1 <= steps <= 5, "some 700 tokens come with each, and a move makes room for 10,000"


def test_what_can_be_had_again_is_left_out_first_and_alone_if_that_makes_room() -> None:
    log = log_with(**LIMITS)
    log.say("go")
    for number in range(12):
        (call,) = log.reply(log.ask(), calls=(f"run {number}",))
        log.result(call, f"done {number} " + "d" * 600)
        (call,) = log.reply(log.ask(), calls=(f"look {number}",), hand="brain")
        log.result(call, f"found {number} " + "f" * 3500, again=True)
    request = next_reply(log.transcript).request
    check_fit(request)
    texts = results(request)
    assert texts[0].startswith("done 0 "), "it cannot be had again, and there is room"
    assert texts[1].startswith("[left out: about ")
    assert texts[-1].startswith("found 11 ")
    assert all(text.startswith("done ") for text in texts[::2])


def test_a_stub_names_the_tool_that_reads_the_log_when_the_model_has_it() -> None:
    def first_stub(**tools: bool) -> str:
        log = log_with(**LIMITS)
        agent = log.transcript.agent | {"tools": tools}
        log.add("session.updated", {"agent": agent})
        log.say("go")
        work(log, 40)
        request = next_reply(log.transcript).request
        offered = {tool["name"] for tool in request.get("tools", ())}
        assert ("brain__session_read" in offered) is tools.get("session_log", True)
        return results(request)[0]

    assert first_stub().endswith("of the session's log: brain__session_read reads it]")
    assert first_stub(session_log=False).endswith("of the session's log]")
