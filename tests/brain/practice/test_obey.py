"""Lines that start with `$ ` become calls, one a turn, then a report."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from brain.practice.obey import HELP, Instruction, instructions
from tests.practice import (
    BASH,
    assistant,
    called,
    client_of,
    practice_server,
    requests_of,
    result,
    said,
    text_in,
    user,
)

OTHER = {**BASH, "name": "web__bash"}


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with practice_server() as url:
        yield url


async def ask(url: str, messages: list[Any], **more: Any) -> anthropic.types.Message:
    async with client_of(url) as client:
        tools = more.pop("tools", [BASH, OTHER])
        reply: anthropic.types.Message = await client.messages.create(
            model="m", max_tokens=500, messages=messages, tools=tools, **more
        )
        return reply


def call_in(message: anthropic.types.Message) -> tuple[str, object]:
    assert message.stop_reason == "tool_use"
    (block,) = message.content
    assert block.type == "tool_use"
    return block.name, block.input


def closing(message: anthropic.types.Message) -> str:
    assert message.stop_reason == "end_turn"
    return text_in(message)


def test_only_lines_that_start_with_the_mark_are_instructions() -> None:
    text = "please:\n$ ls -l  \nand $ not this\n @web $ nor this\n@web $ curl x\n$\n$ \n$x\n$ a $ b"
    assert instructions(text) == [
        Instruction("$ ls -l", "", "ls -l"),
        Instruction("@web $ curl x", "web", "curl x"),
        Instruction("$ a $ b", "", "a $ b"),
    ]


async def test_each_line_is_one_call_in_order_and_then_a_report(url: str) -> None:
    messages = [user("do this\n$ echo one\n@web $ false\n$ seq 9")]
    results = ["one\n", "[exit code 1]", "\n".join("123456789")]
    calls = []
    for index, content in enumerate(results):
        message = await ask(url, messages)
        calls.append(call_in(message))
        (block,) = message.content
        assert block.type == "tool_use"
        answer = result(block.id, content, is_error=index == 1)
        messages += [message.to_param(), user([answer])]
    assert calls == [
        ("bash", {"command": "echo one"}),
        ("web__bash", {"command": "false"}),
        ("bash", {"command": "seq 9"}),
    ]
    assert closing(await ask(url, messages)).splitlines() == [
        "I am the practice model: a local server that speaks the Messages API, not a model.",
        "I made 3 calls, with 1 error:",
        "$ echo one",
        "    one",
        "@web $ false  (error)",
        "    [exit code 1]",
        "$ seq 9",
        "    7",
        "    8",
        "    9",
    ]


async def test_without_instructions_it_says_what_it_is_and_what_it_obeys(url: str) -> None:
    assert closing(await ask(url, [user("Please fix the bug.")])) == HELP
    assert "not a model" in HELP
    assert "'$ '" in HELP


async def test_a_message_sent_while_calls_run_replaces_the_instructions(url: str) -> None:
    begun = [
        user("$ one\n$ two"),
        assistant([called("c1", command="one")]),
        user([result("c1"), said("no:\n$ three")]),
    ]
    assert call_in(await ask(url, begun)) == ("bash", {"command": "three"})
    done = [*begun, assistant([called("c2", command="three")]), user([result("c2", "3")])]
    assert "I made 1 call, with no errors:\n$ three\n    3" in closing(await ask(url, done))


async def test_messages_sent_together_are_obeyed_together(url: str) -> None:
    messages = [
        user("$ one"),
        user("$ two"),
        assistant([called("c1", command="one")]),
        user([result("c1")]),
    ]
    assert call_in(await ask(url, messages)) == ("bash", {"command": "two"})


async def test_a_line_for_a_hand_that_was_not_offered_is_explained_before_anything_runs(
    url: str,
) -> None:
    text = closing(await ask(url, [user("$ ls\n@phone $ reboot")]))
    assert "'@phone $ reboot'" in text
    assert "no tool named 'phone__bash'" in text
    assert "Tools offered: bash, web__bash" in text
    assert "If 'phone' is the session's default hand" in text
    assert "Tools offered: none" in closing(await ask(url, [user("$ ls")], tools=[]))


async def test_a_tool_choice_of_none_is_obeyed(url: str) -> None:
    message = await ask(url, [user("$ ls")], tool_choice={"type": "none"})
    assert "Tools offered: none" in closing(message)


async def test_an_empty_result_and_a_structured_one_are_reported(url: str) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    messages = [
        user("$ a\n$ b"),
        assistant([called("c1", command="a")]),
        user([{"type": "tool_result", "tool_use_id": "c1"}]),
        assistant([called("c2", command="b")]),
        user([result("c2", [said("x\ny"), image])]),
    ]
    text = closing(await ask(url, messages))
    assert text.endswith("$ a\n    (no output)\n$ b\n    x\n    y")


async def test_two_servers_give_the_same_answer_to_one_conversation(url: str) -> None:
    messages = [
        user("$ one\n$ two"),
        assistant([called("c1", command="one")]),
        user([result("c1")]),
    ]
    async with practice_server() as other:
        assert call_in(await ask(other, messages)) == call_in(await ask(url, messages))
        assert [entry["played"] for entry in await requests_of(other)] == ["instructions"]
