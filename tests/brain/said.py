"""A model that says what a test wants, without a network."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from brain.effects import Failed
from brain.models.model import Model, Reply


class Said(Model):
    """A model that says what a test wants, without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.requests: list[dict[str, Any]] = []
        """What it was asked, in order."""
        self.contents: list[dict[str, bytes]] = []
        """The bytes that came with each, of the blobs that it names."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.asking = asyncio.Event()
        self.fails: BaseException | None = None
        self.replies: list[Reply | Failed] = []
        """What it says first; after these, a text."""

    async def call(
        self,
        parameters: dict[str, Any],
        delta: Callable[[str, bool], None],
        provider: str = "",
        contents: Mapping[str, bytes] | None = None,
    ) -> Reply | Failed:
        """See Model."""
        self.asked += 1
        self.requests.append(parameters)
        self.contents.append(dict(contents or {}))
        self.asking.set()
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        if self.replies:
            return self.replies.pop(0)
        return Reply([{"type": "text", "text": f"reply {self.asked}"}], "end_turn", {})


def uses(*commands: str, stop_reason: str = "tool_use", tool: str = "bash") -> Reply:
    """A reply that asks for bash calls, by the name `tool`."""
    blocks = [
        {"type": "tool_use", "id": f"t{n}", "name": tool, "input": {"command": command}}
        for n, command in enumerate(commands)
    ]
    return Reply(blocks, stop_reason, {})
