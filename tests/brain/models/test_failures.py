"""Every way a model call fails has a kind, and says whether to try again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from brain.effects import Failed
from brain.models.model import Model, Reply
from brain.models.settings import Provider
from brain.session import model_kinds as kinds
from tests.model_endpoint import Endpoint, endpoint, events, sse, tool_use

ASK: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
}


@pytest.fixture
async def service() -> AsyncIterator[Endpoint]:
    async with endpoint() as served:
        yield served


async def ask(
    service: Endpoint, request: dict[str, Any] = ASK, deltas: list[str] | None = None, **more: Any
) -> Reply | Failed:
    """One call; what came of it."""
    settings: dict[str, Any] = {"headers": {"x-api-key": "k"}, "base_url": service.url, **more}
    model = Model({"anthropic": Provider(kind="anthropic", **settings)})
    try:
        return await model.call(
            request, lambda text, thinking: None if deltas is None else deltas.append(text)
        )
    finally:
        await model.close()


async def failed(service: Endpoint, **more: Any) -> Failed:
    """A call that must fail."""
    answer = await ask(service, **more)
    assert isinstance(answer, Failed), answer
    return answer


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, kinds.FAILED, False),
        (401, kinds.AUTHENTICATION, False),
        (402, kinds.BILLING, False),
        (403, kinds.PERMISSION, False),
        (404, kinds.NOT_FOUND, False),
        (408, kinds.TIMED_OUT, True),
        (413, kinds.CONTEXT, False),
        (418, kinds.FAILED, False),
        (429, kinds.RATE_LIMITED, True),
        (500, kinds.FAILED, True),
        (503, kinds.OVERLOADED, True),
        (504, kinds.TIMED_OUT, True),
        (529, kinds.OVERLOADED, True),
    ],
)
async def test_each_status_is_a_kind_that_may_be_tried_again_or_not(
    service: Endpoint, status: int, kind: str, retryable: bool
) -> None:
    service.answers = [service.refuses(status, message="why it is so")]
    answer = await failed(service)
    assert (answer.kind, answer.retryable, answer.status) == (kind, retryable, status)
    assert "why it is so" in answer.message
    assert len(service.asked) == 1, "retries are the harness's"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "1500"}, 1.5),
        (
            {
                "retry_after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            30.0,
        ),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
async def test_how_long_the_service_asks_to_wait_is_read_in_each_form(
    service: Endpoint, headers: dict[str, str], seconds: float | None
) -> None:
    service.answers = [service.refuses(429, **headers)]
    assert (await failed(service)).retry_after == seconds


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 213462 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
        "Input is too long for requested model.",
    ],
)
async def test_an_over_long_prompt_has_its_own_kind_so_that_a_policy_can_act(
    service: Endpoint, message: str
) -> None:
    service.answers = [service.refuses(400, "invalid_request_error", message)]
    answer = await failed(service)
    assert (answer.kind, answer.retryable) == (kinds.CONTEXT, False)


async def test_an_error_that_is_no_json_is_told_and_bounded(service: Endpoint) -> None:
    service.answers = [service.gives(b"<html>" + b"bad gateway " * 1000, 502)]
    answer = await failed(service)
    assert (answer.kind, answer.retryable) == (kinds.FAILED, True)
    assert "bad gateway" in answer.message
    assert len(answer.message) <= 2_000


async def test_a_service_that_sends_no_header_in_time_is_a_timeout(service: Endpoint) -> None:
    service.answers = [service.stands_still()]
    answer = await failed(service, first_timeout=0.2)
    assert (answer.kind, answer.retryable) == (kinds.TIMED_OUT, True)


async def test_a_stream_that_stands_still_is_a_timeout_of_its_own(service: Endpoint) -> None:
    service.answers = [service.stands_still(events([{"type": "text", "text": "half"}])[:3])]
    answer = await failed(service, first_timeout=30, idle_timeout=0.2)
    assert (answer.kind, answer.retryable) == (kinds.TIMED_OUT, True)
    assert "stood still for 0.2 s" in answer.message


async def test_a_stream_that_only_pings_ends_with_the_time_for_the_whole(service: Endpoint) -> None:
    service.answers = [service.stands_still([{"type": "ping"}])]
    answer = await failed(service, whole_timeout=0.3)
    assert (answer.kind, answer.retryable) == (kinds.TIMED_OUT, True)


@pytest.mark.parametrize("whole", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("cut", [False, True])
async def test_a_stream_cut_after_any_event_is_never_half_a_reply(
    service: Endpoint, whole: int, cut: bool
) -> None:
    all_events = events([{"type": "text", "text": "half"}])
    service.answers = [service.streams(all_events[:whole], cut=cut)]
    answer = await failed(service)
    assert answer.retryable
    assert answer.kind in (kinds.CUT, kinds.FAILED)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"event: message_start\ndata: {half\n\n", "cannot be read"),
        (b'event: message_start\ndata: "text"\n\n', "cannot be read"),
        (b'event: message_start\ndata: {"type": "message_start"}\n\n', "not what its type says"),
        (
            sse([{"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta"}}]),
            "not what its type says",
        ),
        (b"<html>log in first</html>", "ended before"),
        (b"", "ended before"),
    ],
)
async def test_what_is_no_stream_of_events_is_a_failure_in_words(
    service: Endpoint, data: bytes, part: str
) -> None:
    service.answers = [service.gives(data, content_type="text/event-stream")]
    answer = await failed(service)
    assert (answer.kind, answer.retryable) == (kinds.CUT, True)
    assert part in answer.message


@pytest.mark.parametrize(
    ("kind", "expected", "retryable"),
    [
        ("overloaded_error", kinds.OVERLOADED, True),
        ("rate_limit_error", kinds.RATE_LIMITED, True),
        ("api_error", kinds.FAILED, True),
        ("invalid_request_error", kinds.FAILED, False),
        ("something_new", kinds.FAILED, True),
    ],
)
async def test_an_error_inside_a_stream_has_the_kind_it_names(
    service: Endpoint, kind: str, expected: str, retryable: bool
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "in the middle"}}
    service.answers = [service.streams([*events([{"type": "text", "text": "half"}])[:3], error])]
    answer = await failed(service)
    assert (answer.kind, answer.retryable) == (expected, retryable)
    assert "in the middle" in answer.message


@pytest.mark.parametrize("stop", ["end_turn", "pause_turn"])
async def test_an_empty_reply_is_a_failure_that_says_what_it_cost(
    service: Endpoint, stop: str
) -> None:
    service.answers = [service.streams(events([], stop))]
    answer = await failed(service)
    assert (answer.kind, answer.retryable) == (kinds.EMPTY, True)
    assert answer.usage == {"input_tokens": 10, "output_tokens": 5}


@pytest.mark.parametrize("stop", ["refusal", "max_tokens", "model_context_window_exceeded", "new"])
async def test_an_empty_reply_with_a_reason_is_a_reply(service: Endpoint, stop: str) -> None:
    service.answers = [service.streams(events([], stop))]
    answer = await ask(service)
    assert isinstance(answer, Reply)
    assert (answer.stop_reason, answer.blocks) == (stop, [])


@pytest.mark.parametrize("raw", ['{"command": "rm -rf /tm', "[1, 2]", "nonsense", '"text"'])
async def test_tool_input_that_is_no_json_object_is_no_smaller_call(
    service: Endpoint, raw: str
) -> None:
    service.answers = [service.streams(events([tool_use(raw)], "tool_use"))]
    answer = await ask(service)
    assert isinstance(answer, Reply)
    (block,) = answer.blocks
    assert block["input"] == {}
    assert block["invalid_input"].replace(" ", "") == raw.strip('"').replace(" ", "")


async def test_tool_input_that_is_empty_is_an_empty_object(service: Endpoint) -> None:
    service.answers = [service.streams(events([tool_use("")], "tool_use"))]
    answer = await ask(service)
    assert isinstance(answer, Reply)
    assert answer.blocks == [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}]


async def test_blocks_of_the_services_own_tools_come_as_they_are(service: Endpoint) -> None:
    search: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://x", "page_age": None}],
    }
    failing = {
        "type": "web_fetch_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": {"type": "web_fetch_tool_result_error", "error_code": "max_uses_exceeded"},
    }
    new = {"type": "of_a_kind_to_come", "parts": [{"deep": None}]}
    blocks = [search | {"raw": '{"query": "x"}'}, found, failing, new]
    service.answers = [service.streams(events(blocks, "pause_turn"))]
    answer = await ask(service)
    assert isinstance(answer, Reply)
    assert answer.blocks == [search | {"input": {"query": "x"}}, found, failing, new]


async def test_usage_has_the_caches_numbers_and_the_end_its_details(service: Endpoint) -> None:
    usage = {"cache_read_input_tokens": 900, "cache_creation_input_tokens": 50}
    details = {"type": "refusal", "category": "cyber", "explanation": "no"}
    said = [{"type": "text", "text": "I will not"}]
    service.answers = [
        service.streams(events(said, "refusal", usage, stop_details=details, new_field=1))
    ]
    answer = await ask(service)
    assert isinstance(answer, Reply)
    assert answer.usage == {"input_tokens": 10, "output_tokens": 5, **usage}
    assert answer.stop == {"stop_details": details}


async def test_a_reply_too_large_for_the_log_is_a_failure_not_a_stuck_session(
    service: Endpoint,
) -> None:
    service.answers = [service.says("x" * 1_000_000)]
    answer = await failed(service)
    assert answer.kind == kinds.CUT
    assert "more than 900000 bytes" in answer.message
    service.answers = [service.says(*["x" * 800_000] * 6)]
    assert "more than 3500000 bytes" in (await failed(service)).message


async def test_deltas_come_as_they_are_sent_and_only_of_this_attempt(service: Endpoint) -> None:
    half = events([{"type": "text", "text": "first"}])[:3]
    service.answers = [service.streams(half, cut=True), service.says("second")]
    first: list[str] = []
    second: list[str] = []
    assert isinstance(await ask(service, deltas=first), Failed)
    assert isinstance(await ask(service, deltas=second), Reply)
    assert (first, second) == (["first"], ["second"])
