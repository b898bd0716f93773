"""A request that no policy can make again goes on without what a provider lacks, and is kept so."""

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brain.effects import CallModel, Failed, Purpose, Replied
from brain.model_calls import ModelCalls
from brain.models.model import Model
from brain.models.settings import Provider
from brain.recorded.kept import from_blobs
from brain.recorded.recording import Recording
from brain.session.log import entry_of
from brain.text import canonical
from tests.brain.said import Said
from tests.brain.stage import Stage
from tests.model_endpoint import Endpoint, endpoint

GIVEN: dict[str, Any] = {
    "model": "m",
    "max_tokens": 10,
    "thinking": {"type": "adaptive"},
    "temperature": 1.0,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "a request of its own"}]}],
}


@pytest.fixture
async def service() -> AsyncIterator[Endpoint]:
    async with endpoint() as served:
        yield served


async def call(driven: Stage, service: Endpoint, **settings: Any) -> Replied | Failed:
    """One call with a given request; it must not be the budget that ends it."""
    headers = {"x-api-key": "k"}
    provider = Provider(kind="anthropic", base_url=service.url, headers=headers, **settings)
    model = Model({"p": provider}, "p")
    calls = ModelCalls(driven.driver, driven.hub, model, "odd/1")
    effect = CallModel(GIVEN, policy="given/1", through=driven.driver.transcript.head)
    try:
        answer = await calls.call(effect)
    finally:
        await model.close()
    assert isinstance(answer, Replied | Failed)
    return answer


async def test_what_is_known_to_be_missing_and_what_is_refused_is_left_out_in_one_call(
    driven: Stage, service: Endpoint
) -> None:
    service.answers = [
        service.refuses(400, message="temperature: Extra inputs are not permitted"),
        service.says("all the same"),
    ]
    answer = await call(driven, service, lacks=["thinking"])
    assert isinstance(answer, Replied)
    first, second = (asked.body for asked in service.asked)
    assert ("thinking" in first, "temperature" in first) == (False, True)
    assert ("thinking" in second, "temperature" in second) == (False, False)
    kinds = await driven.kinds()
    assert kinds.count("context.feature_missing") == 2
    assert kinds[-1] == "span.model_request_end"


async def test_what_is_kept_of_it_is_what_was_sent(driven: Stage, service: Endpoint) -> None:
    await call(driven, service, lacks=["thinking"])
    (sent,) = (asked.body for asked in service.asked)
    del sent["stream"]
    digest = hashlib.sha256(canonical(sent)).hexdigest()
    starts = [data for data in await driven.datas() if "request_blob" in data]
    assert [start["request_sha256"] for start in starts] == [digest]
    assert starts[0]["request_blob"] == f"sha256:{digest}"
    assert json.loads(canonical(sent)) == sent


async def test_what_a_long_turn_keeps_of_its_requests_grows_as_it_does_and_makes_each_again(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs: dict[str, bytes] = {}
    keep = driven.driver.keep

    async def kept(data: bytes) -> str:
        name = await keep(data)
        blobs[name.removeprefix("sha256:")] = data
        return name

    monkeypatch.setattr(driven.driver, "keep", kept)
    model = Said()
    calls = ModelCalls(driven.driver, driven.hub, model, "odd/1")
    said: list[dict[str, Any]] = []
    sizes = []
    for number in range(12):
        said.append({"role": "user", "content": [{"type": "text", "text": f"{number} " * 900}]})
        purpose: Purpose = "aside" if number % 4 == 3 else "reply"
        request = {**GIVEN, "messages": [*said], "temperature": number // 5}
        effect = CallModel(request, "given/1", driven.driver.transcript.head, purpose=purpose)
        await calls.call(effect)
        if purpose == "reply":
            sizes.append(len(blobs[list(blobs)[-1]]))
    # One or two messages each: an aside is kept whole, and nothing goes on from it.
    assert max(sizes) < 3 * sizes[0]
    recording = Recording([entry_of(event) for event in await driven.events()], 0)

    async def blob(digest: str) -> bytes:
        return blobs[digest]

    for asked, sent in zip(recording.asked(), model.requests, strict=True):
        rebuilt = await from_blobs(recording, asked, blob)
        assert (rebuilt.same, rebuilt.why) == (True, "")
        assert json.loads(rebuilt.body) == sent
    last = recording.asked()[-2]
    blobs[str(recording.asked()[0].start.data["request_blob"]).removeprefix("sha256:")] = b"{}"
    rebuilt = await from_blobs(recording, last, blob)
    assert (rebuilt.same, "is another" in rebuilt.why) == (False, True)
