"""The practice model for tests: the real server on a free port, the real client on it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2

from brain.practice.answer import Script
from brain.practice.app import serving
from brain.practice.script import load_script

BASH: Any = {
    "name": "bash",
    "description": "Run a command.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}


@asynccontextmanager
async def practice_server(
    scripts: Sequence[Path | Script] = (), latency: float = 0
) -> AsyncIterator[str]:
    """A practice model on 127.0.0.1; yields its URL. `latency` in seconds."""
    loaded = [load_script(item) if isinstance(item, Path) else item for item in scripts]
    async with serving("127.0.0.1:0", loaded, latency) as served:
        yield served.url


@asynccontextmanager
async def client_of(url: str, *, max_retries: int = 0) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The unmodified client, pointed at a practice model."""
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="practice", max_retries=max_retries, timeout=20
    ) as client:
        yield client


async def requests_of(url: str, *, after: int = 0, wait: float = 0) -> list[dict[str, Any]]:
    """What a practice model was asked; waits up to `wait` seconds for something new."""
    async with httpx2.AsyncClient(base_url=url, timeout=wait + 10) as http:
        answer = await http.get("/practice/requests", params={"after": after, "wait": wait})
        requests: list[dict[str, Any]] = answer.raise_for_status().json()["requests"]
        return requests


def user(content: Any) -> Any:
    """A user message."""
    return {"role": "user", "content": content}


def assistant(content: Any) -> Any:
    """An assistant message."""
    return {"role": "assistant", "content": content}


def called(call: str, name: str = "bash", **values: Any) -> Any:
    """A tool_use block."""
    return {"type": "tool_use", "id": call, "name": name, "input": values}


def result(call: str, content: Any = "done", **more: Any) -> Any:
    """A tool_result block."""
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def text_in(message: anthropic.types.Message) -> str:
    """The text of a reply that is one text block."""
    (block,) = message.content
    assert block.type == "text"
    return block.text


def said(text: str) -> Any:
    """A text block."""
    return {"type": "text", "text": text}
