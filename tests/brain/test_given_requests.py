"""A request that no policy can make again goes on without what a provider lacks, and is kept so."""

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brain.context.request import canonical
from brain.effects import CallModel, Failed, Replied
from brain.model_calls import ModelCalls
from brain.models.model import Model
from brain.models.settings import Provider
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
