"""What passes between Claude Code and its endpoint, without either."""

import json
from typing import Any

from brain.harnesses.claude_code.wire import (
    GO_ON,
    encode,
    events_of,
    is_reply,
    message_of,
    request_of,
    restored,
)

CACHE = {"type": "ephemeral"}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **more}


def test_what_differs_by_process_is_no_part_of_a_request() -> None:
    given = body({"role": "user", "content": "hi"}, stream=True, metadata={"user_id": "random"})
    assert request_of(given) == body({"role": "user", "content": "hi"})


def test_what_makes_it_go_on_is_not_sent_on_and_its_breakpoint_stays() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": []}
    more = {"role": "user", "content": [result, text("more\n"), text(GO_ON, cache_control=CACHE)]}
    (sent,) = request_of(body(more))["messages"]
    assert sent["content"] == [result, text("more", cache_control=CACHE)]
    alone: list[dict[str, Any]] = [
        {"role": "user", "content": GO_ON},
        {"role": "user", "content": [text(GO_ON)]},
    ]
    assert request_of(body(*alone))["messages"] == []


def test_a_result_it_put_elsewhere_is_in_the_request_as_the_log_has_it() -> None:
    elsewhere = {"type": "tool_result", "tool_use_id": "c", "content": "saved to: /tmp/x"}
    other = {"type": "tool_result", "tool_use_id": "d", "content": "as it was"}
    true = {"type": "tool_result", "tool_use_id": "c", "content": [text("all")], "is_error": True}
    given = body({"role": "user", "content": [elsewhere | {"cache_control": CACHE}, other]})
    (sent,) = restored(given, {"c": true})["messages"]
    assert sent["content"] == [true | {"cache_control": CACHE}, other]


def test_a_reply_is_asked_for_with_our_tools_and_instructions_and_all_else_is_an_aside() -> None:
    ours = body(
        {"role": "user", "content": "hi"},
        system=[text("You are an agent."), text("Be brief.")],
        tools=[{"name": "mcp__hands__bash"}],
    )
    tools = frozenset({"mcp__hands__bash"})
    assert is_reply(ours, "Be brief.", tools)
    assert is_reply(ours, "", tools)
    assert not is_reply(ours | {"tools": []}, "Be brief.", tools)
    assert not is_reply(ours | {"system": "Name this session."}, "Be brief.", tools)
    assert not is_reply(
        ours | {"output_config": {"format": {"type": "json_schema"}}}, "Be brief.", tools
    )


def test_a_streamed_reply_puts_together_what_was_said() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "xx"},
        text("so"),
        {"type": "tool_use", "id": "sevt_1", "name": "bash", "input": {"command": "ls \u2028"}},
    ]
    message = message_of("msg_1", "m", blocks, "tool_use", {"output_tokens": 7})
    assert message["content"][3]["name"] == "mcp__hands__bash"
    events = list(events_of(message))
    assert [events[0]["type"], *(e["type"] for e in events[-2:])] == [
        *("message_start", "message_delta", "message_stop")
    ]
    put: list[Any] = []
    for event in events:
        if event["type"] == "content_block_start":
            put.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            kind = delta["type"].removesuffix("_delta")
            if kind == "input_json":
                put[-1]["input"] = json.loads(delta["partial_json"])
            else:
                put[-1][kind] += delta[kind]
    assert put == message["content"]
    assert events[-2]["usage"]["output_tokens"] == 7
    assert encode({"type": "ping"}) == b'event: ping\ndata: {"type": "ping"}\n\n'
