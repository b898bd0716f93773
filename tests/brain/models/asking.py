"""One call of a provider, for tests."""

from typing import Any

from brain.effects import Failed
from brain.models.model import Model, Reply
from brain.models.settings import Provider

ASK: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
}


async def ask(
    provider: Provider, request: dict[str, Any] = ASK, *, times: int = 1
) -> Reply | Failed:
    """What came of the last of some calls."""
    model = Model({"p": provider}, "p")
    try:
        for _ in range(times):
            answer = await model.call(request, lambda text, thinking: None)
        return answer
    finally:
        await model.close()


async def reply(provider: Provider, request: dict[str, Any] = ASK, *, times: int = 1) -> Reply:
    """A call that must not fail."""
    answer = await ask(provider, request, times=times)
    assert isinstance(answer, Reply), answer
    return answer


async def failure(provider: Provider, request: dict[str, Any] = ASK) -> Failed:
    """A call that must fail."""
    answer = await ask(provider, request)
    assert isinstance(answer, Failed), answer
    return answer
