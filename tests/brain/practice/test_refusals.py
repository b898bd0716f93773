"""What the Messages API refuses, the practice model refuses, naming the field."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest

from brain.practice.blocks import signature_of
from brain.practice.refusal import Refusal
from brain.practice.request import read_messages
from brain.practice.server import BODY_BYTES
from tests.practice import BASH, assistant, called, client_of, practice_server, result, said, user

GOOD: dict[str, Any] = {"model": "m", "max_tokens": 10, "messages": [user("hi")]}
KEY = {"x-api-key": "any", "anthropic-version": "2026-10-21"}
CACHED = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        practice_server() as url,
        httpx2.AsyncClient(base_url=url, headers=KEY, timeout=20) as http,
    ):
        yield http


def refusal(**changes: Any) -> str:
    body = {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}
    with pytest.raises(Refusal) as caught:
        read_messages(json.dumps(body).encode())
    assert (caught.value.status, caught.value.kind) == (400, "invalid_request_error")
    return caught.value.message


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"model": ...}, "model: Field required"),
    ({"max_tokens": ...}, "max_tokens: Field required"),
    ({"messages": ...}, "messages: Field required"),
    ({"messages": []}, "messages: at least one message is required"),
    ({"max_tokens": "many"}, "max_tokens: Expected `int`, got `str`"),
    ({"max_tokens": -1}, "max_tokens: Expected `int` >= 0"),
    ({"temperature": 2}, "temperature: Expected `float` <= 1"),
    ({"session_id": "s"}, "session_id: Extra inputs are not permitted"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: Invalid enum value"),
    ({"messages": [user("hi") | {"id": "1"}]}, "messages.0.id: Extra inputs are not permitted"),
    ({"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens: Field required"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "`max_tokens` must be greater"),
    ({"tools": [BASH, BASH]}, "tools: Tool names must be unique: bash"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.custom.name: Expected `str` match"),
    ({"tools": [{"name": "x"}]}, "tools.0.custom.input_schema: Field required"),
    ({"tools": [{"name": "x", "input_schema": {}}]}, "tools.0.custom.input_schema.type: Input"),
    ({"tools": [BASH | {"hand": "h"}]}, "tools.0.custom.hand: Extra inputs are not permitted"),
    ({"tools": [{"type": "bash_20250124"}]}, "tools.0.bash_20250124.name: Field required"),
    ({"system": [{"type": "text"}]}, "system.0.text.text: Field required"),
    (
        {"system": [said("s") | CACHED], "messages": [user([said("x") | CACHED] * 4)]},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), FIELDS, ids=[text for _, text in FIELDS])
def test_a_wrong_field_is_named(changes: dict[str, Any], expected: str) -> None:
    assert expected in refusal(**changes)


CALL = assistant([called("c1")])
TURNS: list[tuple[list[dict[str, Any]], str]] = [
    ([assistant("hi"), user("hi")], 'first message must use the "user" role'),
    ([{"role": "system", "content": "x"}, user("hi")], "messages.0: a `system` message must"),
    ([user("hi"), assistant("Well")], "The conversation must end with a user message."),
    ([user("")], "messages.0: all messages must have non-empty content"),
    ([user([])], "messages.0: all messages must have non-empty content"),
    ([user([said("")])], "messages.0.content.0.text: text content blocks must be non-empty"),
    ([user([said(" \n")])], "text content blocks must contain non-whitespace text"),
    ([user([{"text": "x"}])], "messages.0.content.0.type: Field required"),
    ([user([{"type": "video"}])], "Input tag 'video' found"),
    ([user([said("x") | {"position": 3}])], "messages.0.content.0.text.position: Extra inputs"),
    ([user([called("c1")])], "`tool_use` blocks are not permitted in user messages"),
    (
        [user("hi"), assistant([result("c1")])],
        "`tool_result` blocks are not permitted in assistant messages",
    ),
    ([user("hi"), CALL], "messages.1: `tool_use` ids were found without `tool_result` blocks"),
    ([user("hi"), CALL, user("and?")], "immediately after: c1."),
    ([user("hi"), CALL, user([said("first"), result("c1")])], "immediately after: c1."),
    (
        [user("hi"), assistant([called("c1"), called("c2")]), user([result("c2")])],
        "immediately after: c1.",
    ),
    ([user([result("c1")])], "messages.0: unexpected `tool_use_id` found in `tool_result`"),
    ([user("hi"), CALL, user([result("c1"), result("cX")])], "blocks: cX."),
    (
        [user("hi"), CALL, user([result("c1")]), assistant("ok"), user([result("c1")])],
        "messages.4: unexpected `tool_use_id`",
    ),
    ([user("hi"), CALL, user([result("c1"), result("c1")])], "must have a single result"),
    ([user("hi"), CALL, user([result("c1")]), CALL, user([result("c1")])], "ids must be unique"),
    (
        [user("hi"), assistant([called("c 1")]), user([result("c 1")])],
        "messages.1.content.0.tool_use.id: Expected `str` matching",
    ),
    (
        [user("hi"), CALL, user([result("c1", "", is_error=True)])],
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    ([user("hi"), CALL, user([result("c1", [], is_error=True)])], "content cannot be empty"),
    ([user("hi"), CALL, user([result("c1", [said("")])])], "tool_result.content.0.text: text"),
    ([user("hi"), CALL, user([result("c1", [called("c2")])])], "not permitted in tool results"),
    ([user("hi"), CALL, user([result("c1", outcome="ok")])], "tool_result.outcome: Extra inputs"),
    (
        [
            user("hi"),
            assistant([said("x"), "y"]),
            user("so?"),
        ],
        "messages.1.content.1: Expected `object`, got `str`",
    ),
    (
        [
            user("hi"),
            assistant(
                [{"type": "thinking", "thinking": "a", "signature": signature_of("b")}, said("x")]
            ),
            user("so?"),
        ],
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        [
            user("hi"),
            assistant([{"type": "thinking", "thinking": "a", "signature": signature_of("a")}]),
            user("so?"),
        ],
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
]


@pytest.mark.parametrize(("messages", "expected"), TURNS, ids=[text for _, text in TURNS])
def test_a_broken_transcript_is_refused_where_it_breaks(
    messages: list[dict[str, Any]], expected: str
) -> None:
    assert expected in refusal(messages=messages)


ACCEPTED: list[list[dict[str, Any]]] = [
    [user("a"), user("b")],
    [user("a"), {"role": "system", "content": "now briefly"}],
    [
        user("a"),
        assistant([called("c1")]),
        assistant([called("c2")]),
        user([result("c1")]),
        user([result("c2"), said("and?")]),
    ],
    [user("a"), assistant([said("x") | {"citations": None}]), user("b")],
    [user("a"), assistant([called("c1") | {"caller": {"type": "direct"}}]), user([result("c1")])],
    [user("a"), CALL, user([{"type": "tool_result", "tool_use_id": "c1"}])],
    [user("a"), CALL, user([result("c1", "\n")])],
    [user("a"), assistant([{"type": "server_tool_use", "id": "s", "x": 1}]), user("b")],
    [
        user("a"),
        assistant([{"type": "thinking", "thinking": "", "signature": signature_of("b")}]),
        assistant("c"),
        user("so?"),
    ],
]


@pytest.mark.parametrize("messages", ACCEPTED)
def test_a_sound_transcript_is_accepted(messages: list[dict[str, Any]]) -> None:
    _, conversation = read_messages(json.dumps({**GOOD, "messages": messages}).encode())
    assert conversation.turns[-1].role == "user"


async def test_a_body_that_is_not_json_is_refused(http: httpx2.AsyncClient) -> None:
    for body in (b"", b"{", b"[]", b'{"model": "\\ud800"}', b"\xff"):
        answer = await http.post("/v1/messages", content=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert answer.json()["request_id"] == answer.headers["request-id"]


async def test_a_body_beyond_the_limit_is_refused(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/v1/messages", content=b" " * (BODY_BYTES + 1))
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")


async def test_counting_tokens_checks_the_same_but_needs_no_max_tokens(
    http: httpx2.AsyncClient,
) -> None:
    path = "/v1/messages/count_tokens"
    good = {"model": "m", "messages": [user("hi")]}
    assert (await http.post(path, json=good)).json() == {"input_tokens": 11}
    answer = await http.post(path, json={**good, "messages": [user("hi"), CALL]})
    assert "`tool_use` ids were found without" in answer.json()["error"]["message"]
    answer = await http.post(path, json={**good, "max_tokens": 1})
    assert answer.json()["error"]["message"] == "max_tokens: Extra inputs are not permitted"


async def test_the_client_raises_its_own_class_for_a_broken_transcript() -> None:
    async with practice_server() as url, client_of(url) as client:
        with pytest.raises(anthropic.BadRequestError, match="without `tool_result` blocks"):
            await client.messages.create(**{**GOOD, "messages": [user("hi"), CALL]})
