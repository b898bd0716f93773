"""Whatever a log holds, the Messages API takes what is made of it: as the practice model checks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.practice.blocks import signature_of
from brain.practice.request import read_messages
from brain.text import clean
from tests.brain.context.chats import messages
from tests.brain.logs import Log

TEXT = st.sampled_from(["", " \n", "hi", "a\x00b", "\u2028", "\ud83d"])
JSON = st.recursive(
    st.none() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
BLOCK = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}),
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT, "mine": JSON}),
    st.fixed_dictionaries({"type": st.just("image"), "source": JSON}),
    st.fixed_dictionaries({"type": TEXT}),
)
CONTENT = st.lists(BLOCK, max_size=3) | JSON
THINKING = st.sampled_from(
    [
        {"type": "thinking", "thinking": "hm", "signature": signature_of("hm")},
        {"type": "thinking", "thinking": "cut", "signature": ""},
        {"type": "redacted_thinking"},
        {"type": "text", "text": "\n\n"},
        {"type": "text", "text": "well"},
    ]
)
NAME = st.sampled_from(["bash", "", "run it", "x" * 500, "é__ü", "shell__bash"])
CALL = st.tuples(NAME, JSON, st.sampled_from(["shell", "build", "no hand"]), CONTENT)
REPLY = st.tuples(st.lists(THINKING, max_size=3), st.lists(CALL, max_size=2), CONTENT)


def check(log: Log) -> list[dict[str, Any]]:
    """The messages for the model, taken."""
    made = messages(log.transcript)
    body = {"model": "m", "max_tokens": 10, "messages": made}
    read_messages(json.dumps(body, allow_nan=False, ensure_ascii=False).encode())
    return made


@given(CONTENT, st.lists(REPLY, max_size=3), st.booleans())
def test_no_log_makes_a_request_that_is_refused(
    first: Any, replies: list[tuple[Any, Any, Any]], system: bool
) -> None:
    log = Log()
    log.say("go")
    log.add("system.message" if system else "user.message", clean({"content": first}))
    for blocks, calls, later in replies:
        request = log.ask()
        for block in blocks:
            data = {"content": [block], "model_request_start_id": request}
            log.add("agent.thinking", data)
        made = []
        for name, given_, hand, content in calls:
            data = {"name": name, "input": given_, "hand": hand, "model_request_start_id": request}
            made.append((log.add("agent.tool_use", clean(data)), content))
        log.add("span.model_request_end", {"model_request_start_id": request})
        for call_id, content in made:
            result = {"tool_use_id": call_id, "content": content, "is_error": True}
            log.add("agent.tool_result", clean(result))
            log.result(call_id)  # should the first not be what its type says
        log.add("user.message", clean({"content": later}))
        log.say("and")
    check(log)


def test_a_result_that_a_log_holds_without_a_text_says_so() -> None:
    log = Log()
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("one",))
    log.result(call, "")
    assert check(log)[-1]["content"][0]["content"][0]["text"] == "[no output]"


def test_a_message_in_which_nothing_is_said_keeps_its_place() -> None:
    log = Log()
    log.add("user.message", {"content": []})
    assert check(log)[0]["content"][0]["text"] == "[no text]"


def test_a_block_that_is_not_passed_on_is_named() -> None:
    log = Log()
    log.add("user.message", {"content": [{"type": "image", "source": {"data": "no image"}}]})
    assert "'image'" in check(log)[0]["content"][0]["text"]


@pytest.mark.parametrize("texts", [(" \n",), ("\n", "well")])
def test_a_reply_of_blank_text_does_not_end_its_session(texts: tuple[str, ...]) -> None:
    log = Log()
    log.say("go")
    log.reply(log.ask(), *texts)
    log.say("on")
    said = [block["text"] for turn in check(log) for block in turn["content"]]
    assert said == ["go", *(text for text in texts if text.strip()), "on"]


def test_an_imported_calls_id_is_one_that_can_be_sent() -> None:
    log = Log()
    log.say("go")
    request = log.ask()
    data = {"name": "bash", "input": {}, "hand": "shell", "model_request_start_id": request}
    call_id = log.add("agent.tool_use", data, named="an id: é")
    log.reply(request)
    log.result(call_id)
    use, result = (turn["content"][0] for turn in check(log)[1:])
    assert use["id"] == result["tool_use_id"] != call_id
