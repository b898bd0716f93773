"""A process that asks as Claude Code does, and what a test has it do in between."""

import asyncio
from typing import Any

from brain.harnesses.claude_code.endpoint import Ask, Ended
from brain.harnesses.claude_code.hands import Hands
from brain.harnesses.claude_code.history import Opening
from brain.harnesses.claude_code.pictures import Pictures

Json = dict[str, Any]


class Simulated:
    """Asks a title at each start if it is to, and then what it is told."""

    started = 0
    titles = 0
    """Questions of its own at each start."""
    falls = False
    """After these."""

    def __init__(self, model: str, system: str, max_tokens: int, tools: list[Json]) -> None:
        self._of_the_model = {"model": model, "max_tokens": max_tokens, "system": system}
        self._tools = tools
        self.hands = Hands(tools)
        self.pictures = Pictures()
        self.refused = False
        self._told: list[Json] = []
        self._last: Ask | None = None
        self._called: list[str] = []
        self._titles = self.titles

    async def start(self, opening: Opening) -> None:
        """See Claude."""
        type(self).started += 1
        self._told = [*opening.entries]
        if opening.prompt:
            self._told.append({"role": "user", "content": opening.prompt})

    async def tell(self, content: list[Json]) -> None:
        """See Claude."""
        self._hear()
        self._told.append({"role": "user", "content": content})

    def _hear(self) -> None:
        """The reply to its last question, and the results of its calls when they are there."""
        if self._last is None:
            return
        said, self._last = self._last.answer.result()["content"], None
        self._told.append({"role": "assistant", "content": said})
        self._called = [block["id"] for block in said if block["type"] == "tool_use"]

    async def next(self) -> Ask | Ended:
        """See Claude."""
        if self._titles:
            self._titles -= 1
            title = {"role": "user", "content": "A title?"}
            return Ask({**self._of_the_model, "system": "Titles.", "messages": [title]})
        if self.falls:
            return Ended("it fell")
        self._hear()
        results = [self.hands.results()[each] for each in self._called]
        if results:
            self._told.append({"role": "user", "content": results})
        self._called = []
        tools = [{**tool, "name": f"mcp__hands__{tool['name']}"} for tool in self._tools]
        messages = [*self._told]
        self._last = Ask({**self._of_the_model, "tools": tools, "messages": messages})
        return self._last

    async def stop(self) -> None:
        """See Claude."""
        await asyncio.sleep(0)
