"""Very many calls at once are shared out among clients, each of whose pools stays small."""

import asyncio

import pytest

from brain.models import model as models
from brain.models.model import Model, Reply
from brain.models.settings import Provider
from tests.brain.models.asking import ASK
from tests.brain.stage import WAIT
from tests.model_endpoint import Asked, Wire, endpoint


async def test_no_client_has_more_calls_than_its_pool_bears_and_clients_are_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "TOGETHER", 2)
    go = asyncio.Event()
    came = asyncio.Semaphore(0)
    async with endpoint() as served:
        says = served.says("hello")

        async def held(wire: Wire, asked: Asked) -> None:
            came.release()
            await go.wait()
            await says(wire, asked)

        served.answers = [held]
        headers = {"x-api-key": "k"}
        model = Model({"p": Provider(kind="anthropic", base_url=served.url, headers=headers)}, "p")
        try:
            async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
                calls = [group.create_task(model.call(ASK, lambda *_: None)) for _ in range(5)]
                for _ in range(5):
                    await came.acquire()
                assert [made.calls for made in model._made["p"]] == [2, 2, 1]
                go.set()
            assert all(isinstance(call.result(), Reply) for call in calls)
            assert isinstance(await model.call(ASK, lambda *_: None), Reply)
            assert [made.calls for made in model._made["p"]] == [0, 0, 0]
        finally:
            await model.close()
