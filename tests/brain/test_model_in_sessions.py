"""Whatever a model's service does, the log says it, and the session's next message is answered.

A real session store, the real client, and a service that does as the test says.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from brain.harnesses import tool_loop
from brain.models.model import Model
from brain.models.settings import Provider
from brain.recorded.rebuilt import rebuild
from brain.recorded.recording import Recording
from brain.recorded.replay import Replay
from brain.runner import Runner
from brain.session import model_kinds as kinds
from brain.session.entries import New
from brain.session.log import entry_of
from tests.brain.stage import WAIT, Stage, emit
from tests.model_endpoint import Answer, Endpoint, endpoint, events, sse, tool_use

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
BEGUN = events([{"type": "text", "text": "half of it"}])[:3]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited between tries is a matter of the harness's own tests."""
    monkeypatch.setattr(tool_loop, "_FIRST_WAIT", 0.001)


@pytest.fixture
async def service() -> AsyncIterator[Endpoint]:
    async with endpoint() as served:
        yield served


class Session:
    """A driven session whose models are at a test's service."""

    def __init__(self, driven: Stage, service: Endpoint, **settings: Any) -> None:
        self.stage = driven
        self.service = service
        common: dict[str, Any] = {"base_url": service.url, "headers": {"x-api-key": "k"}}
        first = Provider(kind="anthropic", **common, **settings)
        other = Provider(kind="anthropic", **common, lacks=["cache_control"])
        self.model = Model({"first": first, "other": other}, "first")

    async def agent(self, **more: Any) -> None:
        """The agent is another from here on."""
        agent = {"name": "a", "model": "m", "max_tokens": 100, **more}
        await self.stage.driver.append(New("session.updated", {"agent": agent}))

    async def say(self, *content: dict[str, Any]) -> None:
        """A person does."""
        said = {"content": list(content) or [{"type": "text", "text": "go on"}]}
        await emit(self.stage.sessions, "sesn_1", "user.message", said)
        async with asyncio.timeout(WAIT):
            await self.stage.driver.until(lambda t: t.wants_model())

    async def drive(self) -> None:
        """Until it is idle."""
        stage = self.stage
        async with asyncio.timeout(WAIT):
            await Runner(stage.driver, stage.fleet, stage.hub, self.model).run()

    async def events(self, kind: str) -> list[dict[str, Any]]:
        """The data of the log's events of a type."""
        kinds_, datas = await self.stage.kinds(), await self.stage.datas()
        return [data for each, data in zip(kinds_, datas, strict=True) if each == kind]

    async def errors(self) -> list[tuple[str, str]]:
        """What was said of failures: kind and what follows."""
        said = [data["error"] for data in await self.events("session.error")]
        return [(error["type"], error["retry_status"]["type"]) for error in said]

    async def stop(self) -> dict[str, Any]:
        """How the newest turn ended."""
        return (await self.events("session.status_idle"))[-1]

    def sent(self, index: int = -1) -> dict[str, Any]:
        """A request that came to the service."""
        return self.service.asked[index].body


@pytest.fixture
async def session(driven: Stage, service: Endpoint) -> AsyncIterator[Session]:
    made = Session(driven, service, first_timeout=0.3, idle_timeout=0.3)
    yield made
    await made.model.close()


async def goes_on(session: Session) -> None:
    """The next message is answered, and the log is one that can be folded.

    It gives each request again to the byte, and the harness decides over it as it did.
    """
    session.service.answers = [session.service.says("all is well")]
    await session.say()
    await session.drive()
    assert (await session.stop())["stop_reason"] == {"type": "end_turn"}
    assert (await session.events("agent.message"))[-1]["content"][0]["text"] == "all is well"
    assert session.stage.driver.transcript.malformed == []
    recording = Recording([entry_of(event) for event in await session.stage.events()])
    if not all(asked.sha256 for asked in recording.asked()):
        return  # a test made one up
    for asked in recording.asked():
        assert rebuild(recording, asked).same, asked
    assert Replay(recording, tool_loop.HARNESS, "tool_loop").run().difference is None


Make = Callable[[Endpoint], Answer]

TRIED_AGAIN: list[tuple[str, Make, str]] = [
    ("429", lambda s: s.refuses(429, retry_after="0"), kinds.RATE_LIMITED),
    ("500", lambda s: s.refuses(500), kinds.FAILED),
    ("502 in HTML", lambda s: s.gives(b"<html>bad gateway", 502), kinds.FAILED),
    ("529", lambda s: s.refuses(529, "overloaded_error", "Overloaded"), kinds.OVERLOADED),
    ("408", lambda s: s.refuses(408), kinds.TIMED_OUT),
    ("no answer", lambda s: s.stands_still(), kinds.TIMED_OUT),
    ("stands still", lambda s: s.stands_still(BEGUN), kinds.TIMED_OUT),
    ("cut in the middle", lambda s: s.streams(BEGUN, cut=True), kinds.CUT),
    ("ends in the middle", lambda s: s.streams(BEGUN), kinds.CUT),
    ("no events", lambda s: s.gives(b"data: nonsense\n\n"), kinds.CUT),
    (
        "error in the stream",
        lambda s: s.streams([*BEGUN, {"type": "error", "error": {"type": "overloaded_error"}}]),
        kinds.OVERLOADED,
    ),
    ("empty", lambda s: s.streams(events([])), kinds.EMPTY),
    ("too large", lambda s: s.says("x" * 1_000_000), kinds.CUT),
]
ENDS_THE_TURN: list[tuple[str, Make, str]] = [
    ("400", lambda s: s.refuses(400, message="messages: wrong"), kinds.FAILED),
    ("too long", lambda s: s.refuses(400, message="prompt is too long: 2 > 1"), kinds.CONTEXT),
    ("401", lambda s: s.refuses(401), kinds.AUTHENTICATION),
    ("402", lambda s: s.refuses(402), kinds.BILLING),
    ("403", lambda s: s.refuses(403), kinds.PERMISSION),
    ("404", lambda s: s.refuses(404, message="model: m"), kinds.NOT_FOUND),
    ("413", lambda s: s.refuses(413), kinds.CONTEXT),
    ("429 for a day", lambda s: s.refuses(429, retry_after="86400"), kinds.RATE_LIMITED),
]


@pytest.mark.parametrize(
    ("make", "kind"), [case[1:] for case in TRIED_AGAIN], ids=[case[0] for case in TRIED_AGAIN]
)
async def test_a_failure_that_passes_is_in_the_log_and_the_turn_goes_on(
    session: Session, make: Make, kind: str
) -> None:
    session.service.answers = [make(session.service), session.service.says("at last")]
    await session.drive()
    assert await session.errors() == [(kind, "retrying")]
    ends = await session.events("span.model_request_end")
    assert [end["is_error"] for end in ends] == [True, False]
    assert (ends[0]["error"]["type"], ends[0]["error"]["retryable"]) == (kind, True)
    texts = [data["content"][0]["text"] for data in await session.events("agent.message")]
    assert texts == ["at last"], "nothing of the half reply is in the log"
    assert session.sent(0) == session.sent(1)
    await goes_on(session)


@pytest.mark.parametrize(
    ("make", "kind"), [case[1:] for case in ENDS_THE_TURN], ids=[case[0] for case in ENDS_THE_TURN]
)
async def test_a_failure_that_does_not_pass_ends_the_turn_and_the_next_message_is_answered(
    session: Session, make: Make, kind: str
) -> None:
    session.service.answers = [make(session.service)]
    await session.agent(context={"policy": "whole"})
    await session.drive()
    assert await session.errors() == [(kind, "exhausted")]
    assert (await session.stop())["stop_reason"] == {"type": "retries_exhausted"}
    assert len(session.service.asked) == 1
    await goes_on(session)


async def test_a_service_that_keeps_failing_is_asked_five_times_and_the_turn_ends(
    session: Session,
) -> None:
    session.service.answers = [session.service.refuses(500)]
    await session.drive()
    assert await session.errors() == [(kinds.FAILED, "retrying")] * 4 + [
        (kinds.FAILED, "exhausted")
    ]
    assert (await session.stop())["stop_reason"] == {"type": "retries_exhausted"}
    await goes_on(session)


async def test_a_prompt_that_stays_too_long_comes_to_an_end_whatever_the_policy_does(
    session: Session,
) -> None:
    session.service.answers = [session.service.refuses(400, message="prompt is too long: 2 > 1")]
    await session.drive()
    assert len(session.service.asked) < 10
    assert (await session.stop())["stop_reason"] == {"type": "retries_exhausted"}
    assert (await session.errors())[-1] == (kinds.CONTEXT, "exhausted")
    await goes_on(session)


async def test_a_model_that_stays_silent_ends_the_turn_in_words(session: Session) -> None:
    session.service.answers = [session.service.streams(events([]))]
    await session.drive()
    assert len(session.service.asked) == 2
    stop = await session.stop()
    assert stop["stop_reason"] == {"type": "end_turn"}
    assert stop["stop_details"] == {"type": "empty_reply"}
    ends = await session.events("span.model_request_end")
    assert ends[0]["model_usage"] == {"input_tokens": 10, "output_tokens": 5}
    await goes_on(session)


async def test_an_image_that_is_refused_is_left_out_with_a_note_and_never_sent_again(
    session: Session,
) -> None:
    await session.say({"type": "text", "text": "look"}, PNG)
    why = "messages.0.content.2.image.source.base64: image exceeds 5 MB maximum: 6 > 5"
    service = session.service
    service.answers = [service.refuses(400, "invalid_request_error", why), service.says("I see")]
    await session.drive()
    assert session.sent(0)["messages"][0]["content"][2]["source"] == PNG["source"]
    text = json.dumps(session.sent(1))
    assert "AAAA" not in text
    assert "the model's service refused this image: messages.0.content.2" in text
    (event,) = await session.events("context.media_refused")
    assert (len(event["sha256"]), event["reason"]) == (1, why)
    assert await session.errors() == [], "what was done about it is said by the event"
    await goes_on(session)
    assert "AAAA" not in json.dumps(session.sent())
    assert len(await session.events("context.media_refused")) == 1


async def test_a_feature_the_provider_lacks_is_one_event_and_the_request_goes_on_without_it(
    session: Session,
) -> None:
    await session.agent(thinking={"type": "adaptive"})
    service = session.service
    why = "adaptive thinking is not supported on this model"
    service.answers = [service.refuses(400, "invalid_request_error", why), service.says("plain")]
    await session.drive()
    assert session.sent(0)["thinking"] == {"type": "adaptive"}
    assert "thinking" not in session.sent(1)
    (event,) = await session.events("context.feature_missing")
    assert event == {"provider": "", "model": "m", "feature": "thinking", "reason": why}
    await goes_on(session)
    assert "thinking" not in session.sent()
    assert len(await session.events("context.feature_missing")) == 1


async def test_a_feature_known_to_be_missing_is_said_before_the_provider_is_asked(
    driven: Stage, service: Endpoint
) -> None:
    session = Session(driven, service, lacks=["thinking"])
    await session.agent(thinking={"type": "adaptive"})
    await session.drive()
    assert len(service.asked) == 1
    assert "thinking" not in session.sent()
    (event,) = await session.events("context.feature_missing")
    assert (event["provider"], event["feature"]) == ("", "thinking")
    assert await session.errors() == []
    await session.model.close()


async def test_after_an_overload_the_turn_goes_on_with_the_fallback_model(
    session: Session,
) -> None:
    await session.agent(fallback_model={"model": "small", "provider": "other"})
    service = session.service
    service.answers = [service.refuses(529, "overloaded_error"), service.says("from the other")]
    await session.drive()
    assert [asked.body["model"] for asked in service.asked] == ["m", "small"]
    (event,) = await session.events("context.fallback_model")
    assert event == {"from": "m", "to": "small", "because": "overloaded"}
    starts = await session.events("span.model_request_start")
    assert [(each["model"], each["provider"]) for each in starts] == [
        ("m", "first"),
        ("small", "other"),
    ]
    await goes_on(session)
    assert session.sent()["model"] == "m", "the next turn begins with the first again"


@pytest.mark.parametrize("raw", ['{"command": "rm -rf /tm', "[]", "no json"])
async def test_tool_input_that_is_no_json_runs_nothing_and_the_model_is_told(
    session: Session, raw: str
) -> None:
    service = session.service
    service.answers = [
        service.streams(events([tool_use(raw)], "tool_use")),
        service.says("I will do better"),
    ]
    await session.drive()
    assert session.stage.hands.asked_for("execute") == []
    (result,) = await session.events("agent.tool_result")
    assert result["is_error"]
    assert "not run: its input is no JSON object" in result["content"][0]["text"]
    assert session.sent()["messages"][-1]["content"][0]["is_error"] is True
    await goes_on(session)


async def test_a_tool_that_does_not_exist_runs_nothing_and_the_model_is_told(
    session: Session,
) -> None:
    service = session.service
    service.answers = [
        service.streams(events([tool_use("{}", "no_such_tool")], "tool_use")),
        service.says("oh"),
    ]
    await session.drive()
    assert not {"provision", "execute"} & set(session.stage.hands.arms())
    (result,) = await session.events("agent.tool_result")
    assert "there is no tool 'no_such_tool'; there are: bash" in result["content"][0]["text"]
    assert session.sent()["messages"][-1]["content"][0]["is_error"] is True
    await goes_on(session)


@pytest.mark.parametrize(
    ("stop", "reason", "details"),
    [
        ("end_turn", "end_turn", None),
        ("stop_sequence", "end_turn", {"type": "stop_sequence", "stop_sequence": "END"}),
        ("max_tokens", "end_turn", {"type": "max_tokens"}),
        (
            "model_context_window_exceeded",
            "end_turn",
            {"type": "model_context_window_exceeded"},
        ),
        ("of_a_kind_to_come", "end_turn", {"type": "of_a_kind_to_come"}),
        ("refusal", "refusal", {"type": "refusal", "category": "cyber"}),
    ],
)
async def test_each_stop_reason_ends_the_turn_and_says_why(
    session: Session, stop: str, reason: str, details: dict[str, Any] | None
) -> None:
    more: dict[str, Any] = {"stop_sequence": "END"} if stop == "stop_sequence" else {}
    if stop == "refusal":
        more["stop_details"] = details
    session.service.answers = [
        session.service.streams(events([{"type": "text", "text": "so far"}], stop, **more))
    ]
    await session.drive()
    idle = await session.stop()
    assert idle["stop_reason"] == {"type": reason}
    assert idle.get("stop_details") == details
    await goes_on(session)


@pytest.mark.parametrize("stop", ["refusal", "max_tokens", "model_context_window_exceeded"])
async def test_a_call_of_a_reply_that_was_not_whole_is_not_run(session: Session, stop: str) -> None:
    service = session.service
    service.answers = [
        service.streams(events([tool_use('{"command": "rm -rf /"}')], stop)),
        service.says("well then"),
    ]
    await session.drive()
    assert session.stage.hands.asked_for("execute") == []
    (result,) = await session.events("agent.tool_result")
    assert "not run" in result["content"][0]["text"]
    await goes_on(session)


async def test_a_paused_turn_goes_on_with_what_the_services_tools_did_as_it_came(
    session: Session,
) -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1"}
    failing = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    service = session.service
    service.answers = [
        service.streams(events([use, found | {"content": failing}], "pause_turn")),
        service.says("found nothing"),
    ]
    await session.drive()
    assert session.sent()["messages"][-1] == {
        "role": "assistant",
        "content": [use, found | {"content": failing}],
    }
    assert (await session.stop())["stop_reason"] == {"type": "end_turn"}
    await goes_on(session)
    assert session.sent()["messages"][1]["content"][0] == use


async def test_a_failed_trys_text_is_another_requests_for_those_who_watch(
    session: Session,
) -> None:
    service = session.service
    service.answers = [service.streams(BEGUN, cut=True), service.says("whole")]
    told: list[tuple[str, str]] = []
    hub = session.stage.hub
    tell = hub.tell

    def listen(session_id: str, moment: Any) -> None:
        if moment.WhichOneof("moment") == "text":
            told.append((moment.text.model_request_id, moment.text.text))
        tell(session_id, moment)

    hub.tell = listen  # type: ignore[method-assign]
    await session.drive()
    (first, half), (second, whole) = told
    assert (half, whole) == ("half of it", "whole")
    assert first != second
    (message,) = await session.events("agent.message")
    assert message["model_request_start_id"] == second


async def test_a_driver_that_takes_over_after_a_failure_neither_asks_nor_says_it_twice(
    session: Session,
) -> None:
    driver = session.stage.driver
    error = {"type": kinds.AUTHENTICATION, "message": "no", "retryable": False}
    await driver.append(
        New("session.status_running", {}),
        New("span.model_request_start", {"through": 2}, id="r1"),
        New(
            "span.model_request_end",
            {"model_request_start_id": "r1", "is_error": True, "error": error},
        ),
    )
    await session.drive()
    assert session.service.asked == []
    assert await session.errors() == [(kinds.AUTHENTICATION, "exhausted")]
    assert (await session.stop())["stop_reason"] == {"type": "retries_exhausted"}
    await goes_on(session)


async def test_a_provider_this_brain_does_not_have_ends_the_turn_and_names_those_it_has(
    session: Session,
) -> None:
    await session.agent(provider="nowhere")
    await session.drive()
    assert await session.errors() == [(kinds.PROVIDER, "exhausted")]
    (error,) = await session.events("session.error")
    assert "no provider 'nowhere'; it has first, other" in error["error"]["message"]
    await session.agent()
    await goes_on(session)


async def test_an_interrupt_ends_a_wait_for_the_service(session: Session) -> None:
    session.service.answers = [session.service.refuses(429, retry_after="200")]
    driving = asyncio.create_task(session.drive())
    async with asyncio.timeout(WAIT):
        await session.stage.driver.until(lambda t: t.failures > 0 and t.models.failure is None)
        await session.stage.interrupt()
        await driving
    assert (await session.stop())["stop_reason"] == {"type": "end_turn"}
    await goes_on(session)


def test_a_stream_of_a_test_is_one_the_package_reads() -> None:
    assert sse(BEGUN).startswith(b"event: message_start\ndata: {")
