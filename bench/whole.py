"""All of Carpal in processes of their own, over mutual TLS, and sessions on it.

As an operator starts them, but that the model is the practice model in `bench.model`.
"""

import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.model import Model, model
from carpal.ids import new_id
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from tests.world import World

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

SECONDS = 300.0
"""For any one step; a benchmark that does not come on ends."""
IDLE = "session.status_idle"
_TERM = 10.0
"""Of leases: a brain's default."""
Json = dict[str, Any]


@dataclass
class Whole:
    """Everything, running."""

    world: World
    model: Model
    stub: "SessionAsyncStub"

    async def create(
        self, text: str, hands: Mapping[str, Json] | None = None, **agent: Any
    ) -> tuple[str, float]:
        """A new session with a first message; its id, and when that was appended."""
        made = new_id("sesn")
        told = {"name": "bench", "model": "practice", "max_tokens": 1000, **agent}
        events = [
            _event("session.updated", {"agent": told, "hands": dict(hands or {})}),
            _event("user.message", _content(text)),
        ]
        request = pb.CreateSessionRequest(session_id=made, events=events, wake=True)
        await self.stub.CreateSession(request, timeout=SECONDS)
        (said,) = await self.events(made, types=("user.message",), limit=1)
        return made, seconds(said)

    async def say(self, session_id: str, text: str) -> types_pb2.Event:
        """A further message."""
        request = pb.EmitEventRequest(
            session_id=session_id, event=_event("user.message", _content(text)), wake=True
        )
        return (await self.stub.EmitEvent(request, timeout=SECONDS)).event

    async def idle(self, session_ids: Iterable[str], after: int = 0) -> None:
        """Wait until each of them, at most 1,000, went idle above a position.

        RuntimeError when one did so without the model having ended its turn.
        """
        left = set(session_ids)
        cursors = [types_pb2.TailCursor(session_id=each, after=after) for each in left]
        request = pb.TailEventsRequest(cursors=cursors, types=[IDLE])
        stream = self.stub.TailEvents(request, timeout=SECONDS)
        try:
            async for answer in stream:
                for event in answer.events:
                    left.discard(answer.session_id)
                    reason = json.loads(event.data)["stop_reason"]["type"]
                    if reason != "end_turn":
                        raise RuntimeError(f"session {answer.session_id} ended by {reason}")
                if not left:
                    return
        finally:
            stream.cancel()
        raise RuntimeError(f"{len(left)} sessions did not go idle")

    async def events(
        self, session_id: str, after: int = 0, types: Sequence[str] = (), limit: int = 1000
    ) -> list[types_pb2.Event]:
        """A slice of a log; all of a short one."""
        found: list[types_pb2.Event] = []
        while True:
            request = pb.GetEventsRequest(
                session_id=session_id, after=after, types=types, limit=limit
            )
            answer = await self.stub.GetEvents(request, timeout=SECONDS)
            found += answer.events
            if not answer.more or (types and len(found) >= limit):
                return found
            after = found[-1].position

    def resident_mb(self, process: str = "b1") -> float:
        """The memory that a process of it holds."""
        pages = int(Path(f"/proc/{self.world.running[process].pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def whole(folder: Path, environ: Mapping[str, str] | None = None) -> AsyncIterator[Whole]:
    """Start all of it, with one brain and one daemon; `environ` is for each process."""
    it = World(folder, _TERM, environ=dict(environ or {}))
    async with model() as served:
        try:
            await it.run("vault", "init", "--state-dir", str(folder), "--brain", "b1")
            it.environ |= {"ANTHROPIC_BASE_URL": served.url, "ANTHROPIC_API_KEY": "practice"}
            where = ("--state-dir", str(folder), "--listen", "127.0.0.1:0")
            await it.start("vault", "vault", "run", *where, "--mcp-listen", "127.0.0.1:0")
            await it.sessiond()
            await it.brain("b1")
            await it.daemon()
            async with it.sessions() as stub:
                yield Whole(it, served, stub)
        finally:
            await it.end()


def process_hand() -> Json:
    """A hand on the daemon, made when it is called first."""
    return {"type": "process", "config": {}, "orphan_deadline": 600.0}


def seconds(event: types_pb2.Event) -> float:
    """When it was appended, by the machine's clock."""
    return event.time.ToMicroseconds() / 1e6


def _event(kind: str, data: Json) -> types_pb2.NewEvent:
    return types_pb2.NewEvent(id=new_id("sevt"), type=kind, data=json.dumps(data).encode())


def _content(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}
