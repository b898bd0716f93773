"""The unmodified client finds nothing missing, streaming and not."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pydantic
import pytest
from anthropic.types import Message, ModelInfo, RawMessageStreamEvent

from brain.practice.answer import Answer, Delay, Script, StopDetails, ToolCall, Usage
from tests.practice import BASH, client_of, practice_server, text_in, user

ASK: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 1000, "tools": [BASH]}
FULL = Answer(
    thinking="Let me think — carefully, it is Žižek's ünïcode 🦀.",
    text="Here is what I do:\n\n\tthree\u2028things 🦀",
    tools=[
        ToolCall("bash", {"command": 'printf "%s" "a\\b" 🦀', "n": [1, 2.5, None, True]}),
        ToolCall("bash", {}),
    ],
    chunk=3,
)
NOT_SENT = {"speed", "citations", "toolset_name", "xhigh"}
"""Optional fields the API leaves out too, for what is not asked for here."""


@pytest.fixture
async def client() -> AsyncIterator[anthropic.AsyncAnthropic]:
    scripts = [
        Script([FULL], match="everything"),
        Script([Answer(stop_reason="refusal", stop_details=StopDetails("cyber", "no"))], "refuse"),
        Script([Answer(text="cut sho", stop_reason="max_tokens")], "short"),
        Script([Answer(text="a", stop_reason="stop_sequence", stop_sequence="END")], "sequence"),
        Script([Answer(text="a", usage=Usage(7, 8, 9, 10))], "usage"),
        Script([Answer(text="slowly", chunk=1, delay=Delay(chunk=0.001))], "slow"),
    ]
    async with practice_server(scripts) as url, client_of(url) as client:
        yield client


def missing(model: pydantic.BaseModel, path: str = "") -> set[str]:
    """Names of fields the client knows and the server did not send."""
    found = {
        name
        for name in type(model).model_fields
        if name not in model.model_fields_set and name not in NOT_SENT
    }
    for name in type(model).model_fields:
        value = getattr(model, name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, pydantic.BaseModel):
                found |= {f"{name}.{inner}" for inner in missing(item)}
    return found


def unknown(model: pydantic.BaseModel) -> set[str]:
    """Names of fields the server sent and the client does not know."""
    found = set(model.model_extra or ())
    for name in type(model).model_fields:
        value = getattr(model, name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, pydantic.BaseModel):
                found |= unknown(item)
    return found


def without_ids(message: Message) -> dict[str, Any]:
    facts = message.to_dict()
    facts.pop("id")
    for block in message.content:
        if block.type == "tool_use":
            assert block.id.startswith("toolu_")
    facts["content"] = [
        {key: value for key, value in block.items() if key not in {"id", "parsed_output"}}
        for block in message.model_dump(mode="json", exclude_unset=True)["content"]
    ]
    return facts


async def test_a_streamed_message_is_the_one_that_is_not_streamed(
    client: anthropic.AsyncAnthropic,
) -> None:
    plain = await client.messages.create(messages=[user("everything")], **ASK)
    async with client.messages.stream(messages=[user("everything")], **ASK) as stream:
        streamed = await stream.get_final_message()
    assert without_ids(streamed) == without_ids(plain)
    kinds = [block.type for block in plain.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    tool = plain.content[2]
    assert tool.type == "tool_use"
    assert tool.input == FULL.tools[0].input
    assert plain.stop_reason == "tool_use"


async def test_a_message_has_every_field_the_client_knows_and_no_other(
    client: anthropic.AsyncAnthropic,
) -> None:
    raw = await client.messages.with_raw_response.create(messages=[user("everything")], **ASK)
    message = Message.model_validate_json(await raw.http_response.aread())
    assert missing(message) <= {"usage.speed"}
    assert unknown(message) == set()
    assert raw.request_id
    assert raw.request_id.startswith("req_")


async def test_every_event_of_a_stream_is_one_the_client_knows_whole(
    client: anthropic.AsyncAnthropic,
) -> None:
    known: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(RawMessageStreamEvent)
    names: list[str] = []
    async with client.messages.with_streaming_response.create(
        messages=[user("everything")], stream=True, **ASK
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        body = (await response.read()).decode()
    for frame in body.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        names.append(name.removeprefix("event: "))
        if names[-1] == "ping":
            assert data == 'data: {"type":"ping"}'
            continue
        event = known.validate_json(data.removeprefix("data: "))
        assert event.type == names[-1]
        assert missing(event) == set()
        assert unknown(event) == set()
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert names.count("content_block_start") == names.count("content_block_stop") == 4


async def test_tool_input_arrives_in_parts_that_are_no_json_by_themselves(
    client: anthropic.AsyncAnthropic,
) -> None:
    parts: list[str] = []
    async with client.messages.stream(messages=[user("everything")], **ASK) as stream:
        async for event in stream:
            if event.type == "input_json" and len(parts) < 5:
                parts.append(event.partial_json)
    assert parts == ["", '{"c', "omm", "and", '":"']


async def test_a_slow_stream_arrives_whole(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(messages=[user("slow")], **ASK) as stream:
        assert [text async for text in stream.text_stream] == list("slowly")


async def test_a_refusal_says_why(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(messages=[user("refuse")], **ASK) as stream:
        message = await stream.get_final_message()
    assert (message.stop_reason, message.content) == ("refusal", [])
    assert message.stop_details
    assert message.stop_details.to_dict() == {
        "type": "refusal",
        "category": "cyber",
        "explanation": "no",
    }


@pytest.mark.parametrize(
    ("text", "reason", "sequence"),
    [("short", "max_tokens", None), ("sequence", "stop_sequence", "END")],
)
async def test_scripts_choose_why_the_model_stopped(
    client: anthropic.AsyncAnthropic, text: str, reason: str, sequence: str | None
) -> None:
    message = await client.messages.create(messages=[user(text)], **ASK)
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)


async def test_scripts_choose_what_was_used(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(messages=[user("usage")], **ASK) as stream:
        usage = (await stream.get_final_message()).usage
    assert (usage.input_tokens, usage.output_tokens) == (7, 8)
    assert (usage.cache_creation_input_tokens, usage.cache_read_input_tokens) == (9, 10)


async def test_counted_tokens_are_the_ones_a_message_reports(
    client: anthropic.AsyncAnthropic,
) -> None:
    ask: dict[str, Any] = {
        "model": "claude-opus-5",
        "messages": [user("hello " * 100)],
        "system": "be brief",
    }
    count = await client.messages.count_tokens(**ask)
    message = await client.messages.create(max_tokens=10, **ask)
    assert message.usage.input_tokens == count.input_tokens
    assert 150 < count.input_tokens < 200
    assert message.usage.output_tokens > 0


async def test_nothing_is_generated_with_no_tokens_to_spend(
    client: anthropic.AsyncAnthropic,
) -> None:
    message = await client.messages.create(
        model="m", max_tokens=0, messages=[user("everything")], tools=[BASH]
    )
    assert (message.content, message.stop_reason) == ([], "max_tokens")
    assert message.usage.output_tokens == 0


async def test_thinking_can_be_turned_off_or_left_out(client: anthropic.AsyncAnthropic) -> None:
    ask = {**ASK, "messages": [user("everything")]}
    off = await client.messages.create(thinking={"type": "disabled"}, **ask)
    assert [block.type for block in off.content] == ["text", "tool_use", "tool_use"]
    bare = await client.messages.create(thinking={"type": "adaptive", "display": "omitted"}, **ask)
    assert bare.content[0].type == "thinking"
    assert (bare.content[0].thinking, bool(bare.content[0].signature)) == ("", True)


async def test_no_answer_claims_to_come_from_the_model_asked_for(
    client: anthropic.AsyncAnthropic,
) -> None:
    message = await client.messages.create(messages=[user("hello")], **ASK)
    assert message.model == "practice"
    assert "not a model" in text_in(message)


async def test_the_model_list_has_one_entry_that_says_it_is_not_a_model(
    client: anthropic.AsyncAnthropic,
) -> None:
    listed = [info async for info in client.models.list()]
    assert [info.id for info in listed] == ["practice"]
    assert "not a model" in listed[0].display_name
    one = await client.models.retrieve("practice")
    raw = await client.models.with_raw_response.retrieve("practice")
    whole = ModelInfo.model_validate_json(await raw.http_response.aread())
    assert one.to_dict() == whole.to_dict() == listed[0].to_dict()
    assert missing(whole) == set()
    assert unknown(whole) == set()
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("claude-opus-5")


async def test_the_beta_client_and_older_paths_work_too(client: anthropic.AsyncAnthropic) -> None:
    message = await client.beta.messages.create(
        messages=[user("everything")], betas=["some-2026-01-01"], **ASK
    )
    assert message.stop_reason == "tool_use"
    async with httpx2.AsyncClient(base_url=client.base_url) as http:
        answer = await http.post(
            "/v1/messages?beta=true",
            json={"model": "m", "max_tokens": 1, "messages": [user("hi")]},
            headers={"x-api-key": "any", "anthropic-version": "2023-06-01"},
        )
    assert answer.status_code == 200
