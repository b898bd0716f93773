"""A model of a test's own: it does what its session's plan says, step by step, and can be held.

The plan stands in the system prompt, which no cut of the window takes away. How far
it is follows from the request alone: a step whose calls are in the conversation was
taken, and a summary says which was the last. So it takes no step twice, unless it is
asked twice for the same one because the first answer never came into the log.
"""

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from brain.context.request import digest
from brain.practice.answer import Answer, Cut, Failure, ToolCall
from brain.practice.app import serving_app
from brain.practice.player import Play, Player
from brain.practice.request import Conversation
from brain.practice.server import Practice
from tests.pace import SCALE

SUMMARISE = "SUMMARISE what was done."
"""The instructions by which a question for a summary is known."""
SAID_LAST = "all done"
_PLAN = "PLAN "
_SECONDS = 60.0 * SCALE
_TAKEN = re.compile(r"step-(\d+)-")
_held: ContextVar[str] = ContextVar("held", default="")
"""What the request that is being answered waits for."""


@dataclass(frozen=True)
class Step:
    """One reply of the model."""

    calls: Sequence[tuple[str, str]]
    """Hand (empty for the default one) and command of each."""
    fails: Mapping[str, Any] | None = None
    """The failure that the first attempts meet, as a script's `error`."""
    cut: Mapping[str, Any] | None = None
    """Where the stream of the first attempts breaks off, as a script's `cut`."""


def named(step: int, call: int) -> str:
    """The name of a call, which its command must have."""
    return f"step-{step}-{call}"


def plan(name: str, steps: Sequence[Step]) -> str:
    """A system prompt: the session's name among those of the test, and what its model does."""
    made = [
        {"calls": list(step.calls), "error": step.fails, "cut": step.cut}
        for step in steps
    ]  # fmt: skip
    return _PLAN + json.dumps({"name": name, "steps": made})


class Mind(Player):
    """Plays the plans."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, Counter[str]] = defaultdict(Counter)
        """Session → the digest of each request that came → how often."""
        self._gates: dict[str, asyncio.Event] = {}
        self._came: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def hold(self, name: str, what: str) -> None:
        """The session's reply of a step, as `0`, or its `summary`, waits for `let_go`."""
        self._gates[f"{name} {what}"] = asyncio.Event()

    def let_go(self, name: str, what: str) -> None:
        """It waits no longer, nor does a later one."""
        self._gates[f"{name} {what}"].set()

    async def asked(self, name: str, what: str) -> None:
        """Until the model is asked for it."""
        async with asyncio.timeout(_SECONDS):
            await self._came[f"{name} {what}"].wait()

    def play(self, conversation: Conversation, raw: bytes) -> Play:
        """What the plan says is next."""
        made = json.loads(conversation.system.removeprefix(_PLAN))
        name, steps = made["name"], made["steps"]
        body = json.loads(raw)
        body.pop("stream")
        sha = digest(body)
        self.sent[name][sha] += 1
        step = _taken(body["messages"]) + 1
        if SUMMARISE in conversation.last_user_text:
            self._note(name, "summary")
            return Play(Answer(text=f"It is done up to step-{step - 1}-."), "summary")
        self._note(name, str(step))
        if step >= len(steps):
            return Play(Answer(text=SAID_LAST), "end")
        tools = [
            ToolCall(name=f"{hand}__bash" if hand else "bash", input={"command": command})
            for hand, command in steps[step]["calls"]
        ]
        answer = Answer(thinking=f"Now step {step}.", text=f"Step {step}.", tools=tools)
        attempt = self.sent[name][sha]
        failure, cut = steps[step]["error"], steps[step]["cut"]
        return Play(
            answer,
            f"{name}[{step}]",
            error=Failure(**failure) if failure and attempt <= failure.get("times", 1) else None,
            cut=Cut(**cut) if cut and attempt <= cut.get("times", 1) else None,
        )

    def _note(self, name: str, what: str) -> None:
        key = f"{name} {what}"
        self._came[key].set()
        _held.set(key)

    async def held(self) -> None:
        """Until nobody holds the answer that is being made."""
        if gate := self._gates.get(_held.get()):
            await gate.wait()


def _taken(messages: list[dict[str, Any]]) -> int:
    """The last step whose calls were made; -1 for none."""
    found = [-1]
    for message in messages:
        for block in message["content"]:
            if block["type"] == "tool_use" and message["role"] == "assistant":
                found += map(int, _TAKEN.findall(block["input"]["command"]))
            elif block["type"] == "text" and message["role"] == "user":
                found += map(int, _TAKEN.findall(block["text"]))
    return max(found)


@dataclass(frozen=True)
class _Holding:
    """The practice model's server, whose answers wait as the mind says."""

    mind: Mind
    app: Practice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def slowly(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self.mind.held()
            await send(message)

        await self.app(scope, receive, slowly)


@asynccontextmanager
async def thinking() -> AsyncIterator[tuple[Mind, str]]:
    """A mind, and the URL at which it is asked."""
    mind = Mind()
    async with serving_app("127.0.0.1:0", _Holding(mind, Practice(player=mind))) as served:
        yield mind, served.url
