"""A conversation written for a new process, and held against what it then asks."""

import json
from typing import Any

import pytest

from brain.harnesses.claude_code.history import (
    as_known,
    as_text,
    file_of,
    missing,
    opening,
    session_id,
)
from brain.harnesses.claude_code.wire import GO_ON


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


USE = {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [text("a b")], "is_error": True}
REPLY = {"role": "assistant", "content": [text("let me see"), USE]}


def test_a_first_message_needs_no_file() -> None:
    begin = opening([user(text("hi"))])
    assert (begin.entries, begin.prompt) == ([], [text("hi")])


def test_a_new_message_after_a_reply_is_said_and_the_rest_is_the_file() -> None:
    before = [user(text("hi")), {"role": "assistant", "content": [text("hello")]}]
    begin = opening([*before, user(text("and?"))])
    assert (begin.entries, begin.prompt) == (before, [text("and?")])


def test_a_turn_that_was_cut_after_results_is_all_in_the_file() -> None:
    all_of_it = [user(text("hi")), REPLY, user(RESULT, text("mind the gap"))]
    begin = opening(all_of_it)
    assert (begin.entries, begin.prompt) == (all_of_it, [])


def test_a_reply_that_paused_goes_on_where_it_did() -> None:
    all_of_it = [user(text("hi")), {"role": "assistant", "content": [text("so")]}]
    begin = opening(all_of_it)
    assert (begin.entries, begin.prompt) == (all_of_it, [text(GO_ON)])


def test_the_file_names_tools_as_claude_code_does_and_each_entry_the_one_before() -> None:
    marked = {**REPLY, "content": [{**USE, "cache_control": {"type": "ephemeral"}}]}
    entries = as_known([user(text("hi")), marked])
    assert entries[1]["content"] == [{**USE, "name": "mcp__hands__bash"}]
    lines = file_of(entries, session_id("s"), "/w", "m", "2026-01-01T00:00:00.000Z").splitlines()
    first, second = map(json.loads, lines)
    assert (first["parentUuid"], second["parentUuid"]) == (None, first["uuid"])
    assert second["message"]["content"] == entries[1]["content"]
    assert session_id("s") == session_id("s") != session_id("t")


def test_as_text_it_holds_all_that_was_said_and_done_and_asks_what_was_asked() -> None:
    begin = as_text([user(text("hi")), REPLY, user(RESULT, text("and?"))])
    assert begin.entries == []
    told, asked = begin.prompt
    for part in ("user: hi", "assistant: let me see", 'bash (c1): {"command": "ls"}', "a b"):
        assert part in told["text"]
    assert asked == text("and?")


@pytest.mark.parametrize(
    ("request_blocks", "lost"),
    [
        ([text("hi\n"), USE, RESULT], ""),
        ([text("<reminder>hi</reminder>"), USE, {**RESULT, "content": "a b"}], ""),
        ([USE, RESULT], "a text of the user"),
        ([text("hi"), RESULT], "the call c1"),
        ([text("hi"), {**USE, "input": {}}, RESULT], "the call c1"),
        ([text("hi"), USE], "the result of c1"),
        ([text("hi"), USE, {**RESULT, "is_error": False}], "the result of c1"),
        ([text("hi"), USE, {**RESULT, "content": "interrupted"}], "the result of c1"),
    ],
)
def test_a_request_is_held_against_all_that_was_told(
    request_blocks: list[dict[str, Any]], lost: str
) -> None:
    told = [user(text("hi")), {"role": "assistant", "content": [USE]}, user(RESULT)]
    assert missing({"messages": [user(*request_blocks)]}, told) == lost
