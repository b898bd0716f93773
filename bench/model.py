"""The practice model in a process of its own, that says when each request came, and can hold them.

A message names itself by a mark, `bench:MARK`; of each mark the first request that has it as its
last is noted, by the machine's clock. Requests whose mark begins with `held` wait at a gate, so
that many are in flight together, until it is opened. `python -m bench.model` says its address in a
line and ends with its standard input.
"""

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import msgspec
import uvicorn
from starlette.types import Message, Receive, Scope, Send

from brain import serving
from brain.practice.answer import Answer, Script, ToolCall
from brain.practice.server import Practice

_MARK = re.compile(rb"bench:([a-z0-9-]+)")
_SECONDS = 60.0
MANY_HANDS = "every hand at once"
"""A session whose first message says so has each of its hands called, by one reply."""
HANDS = tuple(f"h{number}" for number in range(50))


class Marked:
    """The practice model's application behind a gate, and a notebook."""

    def __init__(self) -> None:
        self._model = Practice([_many_hands()])
        self._came: dict[str, float] = {}
        self._waiting = 0
        self._gate = asyncio.Event()
        self._latency = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        if scope["path"] == "/bench":
            await self._told(scope, send)
            return
        came = time.time()
        body = bytearray()
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        found = _MARK.findall(bytes(body))
        mark = found[-1].decode() if found else ""
        self._came.setdefault(mark, came)
        if mark.startswith("held"):
            self._waiting += 1
            await self._gate.wait()
        if self._latency:
            await asyncio.sleep(self._latency)  # a model takes this long: it is what is measured
        whole: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def again() -> Message:
            nonlocal whole
            given, whole = whole, None
            return given if given is not None else await receive()

        await self._model(scope, again, send)

    async def _told(self, scope: Scope, send: Send) -> None:
        """What came; with a query, the gate is opened, or the latency set, before."""
        asked = scope["query_string"].decode()
        if asked == "open":
            self._gate.set()
        elif asked.startswith("latency="):
            self._latency = float(asked.partition("=")[2])
        told = msgspec.json.encode(Told(self._came, self._waiting))
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": told})


def _many_hands() -> Script:
    names = ["bash", *(f"{hand}__bash" for hand in HANDS[1:])]
    calls = [ToolCall(name, {"command": "true"}) for name in names]
    return Script([Answer(tools=calls), Answer(text="they are there")], MANY_HANDS, "hands")


class Told(msgspec.Struct, frozen=True):
    """What it says of itself."""

    came: dict[str, float]
    waiting: int


@dataclass
class Model:
    """One that serves."""

    url: str

    async def came(self) -> dict[str, float]:
        """Mark → when its first request came, in seconds of the machine's clock."""
        return (await self._ask()).came

    async def waiting(self) -> int:
        """How many requests came to the gate."""
        return (await self._ask()).waiting

    async def open(self) -> None:
        """The gate, for good."""
        await self._ask("?open")

    async def latency(self, seconds: float) -> None:
        """How long it takes to its first token from now on."""
        await self._ask(f"?latency={seconds}")

    async def _ask(self, more: str = "") -> Told:
        async with httpx2.AsyncClient(timeout=_SECONDS) as http:
            answer = await http.get(f"{self.url}/bench{more}")
            return msgspec.json.decode(answer.raise_for_status().content, type=Told)


@asynccontextmanager
async def model() -> AsyncIterator[Model]:
    """Start one; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.model"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError("the model did not start")
        yield Model(line.decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serve() -> None:
    config = uvicorn.Config(
        *(Marked(), "127.0.0.1", 0), http="h11", backlog=2048, **serving.serve()
    )
    server = serving.Server(config)
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(_SECONDS):
        await server.up.wait()
    port = server.servers[0].sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.stop.set()
    await running


if __name__ == "__main__":
    asyncio.run(_serve())
