"""Sessions for interaction tests: start one, wait for what its log says, read the outcome."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from carpal.ids import new_id
from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2
from tests.hands.place import let_go as open_pipe
from tests.pace import SCALE
from tests.world import World

SECONDS = 30.0 * SCALE
"""How long any step of a session may take."""
_REDIAL = 0.05
"""Seconds between attempts while sessiond is gone."""


@dataclass
class Session:
    """One session, its log as far as it came."""

    session_id: str
    stub: "session_pb2_grpc.SessionAsyncStub"
    log: list[types_pb2.Event] = field(default_factory=list)
    _grew: asyncio.Condition = field(default_factory=asyncio.Condition)
    _broken: Exception | None = None
    """Why it is not followed any more."""

    async def until(
        self, holds: Callable[[types_pb2.Event], bool], after: int = 0, seconds: float = SECONDS
    ) -> types_pb2.Event:
        """The first event above a position of which something is true."""

        def found() -> types_pb2.Event | None:
            return next((e for e in self.log if e.position > after and holds(e)), None)

        try:
            async with asyncio.timeout(seconds), self._grew:
                await self._grew.wait_for(lambda: found() is not None or self._broken is not None)
        except TimeoutError:
            pass  # said below, with what there is
        if self._broken is not None:
            raise self._broken
        event = found()
        assert event is not None, "it did not come; the log:\n" + self.text()
        return event

    async def until_type(
        self, kind: str, after: int = 0, seconds: float = SECONDS
    ) -> types_pb2.Event:
        """The first event of a type above a position."""
        return await self.until(lambda e: e.type == kind, after, seconds)

    async def say(self, text: str) -> types_pb2.Event:
        """A person's message."""
        data = {"content": [{"type": "text", "text": text}]}
        return await self._emit("user.message", data)

    async def allow(self, call_id: str) -> types_pb2.Event:
        """A person allows a call."""
        return await self._emit(
            "user.tool_confirmation", {"tool_use_id": call_id, "result": "allow"}
        )

    async def consent(self, consent_id: str, result: str, message: str = "") -> types_pb2.Event:
        """A person says that there is a user's consent, or that there will be none."""
        data = {"consent_id": consent_id, "result": result, "message": message}
        return await self._emit("user.consent", data)

    async def interrupt(self) -> types_pb2.Event:
        """A person's interrupt."""
        return await self._emit("user.interrupt", {})

    async def lease(self) -> types_pb2.LeaseInfo:
        """Who drives it."""
        request = session_pb2.GetSessionRequest(session_id=self.session_id)
        return (await self.stub.GetSession(request, timeout=SECONDS)).session.lease

    async def driver(self) -> str:
        """Name of the brain that drives it."""
        return (await self.lease()).holder.rpartition("/")[2]

    def data(self, kind: str) -> list[dict[str, Any]]:
        """The data of every event of a type."""
        return [json.loads(e.data) for e in self.log if e.type == kind]

    def results(self) -> list[str]:
        """The text of every tool result."""
        return [d["content"][0]["text"] for d in self.data("agent.tool_result")]

    def text(self) -> str:
        """The log, a line an event, for failures."""
        return "\n".join(
            f"{e.position} {e.source.rpartition('/')[2]} {e.type} {e.data.decode()[:200]}"
            for e in self.log
        )

    async def follow(self) -> None:
        """Read the log as it grows, through restarts of sessiond; runs until cancelled.

        Anything else that ends it fails whoever waits for an event.
        """
        try:
            while True:
                await self._follow_once()
                await asyncio.sleep(_REDIAL)
        except Exception as error:
            async with self._grew:
                self._broken = error
                self._grew.notify_all()
            raise

    async def _follow_once(self) -> None:
        cursor = types_pb2.TailCursor(session_id=self.session_id, after=len(self.log))
        stream = self.stub.TailEvents(session_pb2.TailEventsRequest(cursors=[cursor]))
        try:
            async for answer in stream:
                async with self._grew:
                    self.log.extend(answer.events)
                    self._grew.notify_all()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        finally:
            stream.cancel()

    async def _emit(self, kind: str, data: dict[str, Any]) -> types_pb2.Event:
        event = types_pb2.NewEvent(id=new_id("sevt"), type=kind, data=json.dumps(data).encode())
        request = session_pb2.EmitEventRequest(session_id=self.session_id, event=event, wake=True)
        async with asyncio.timeout(SECONDS):
            while True:  # the id makes it one event, however often it is sent
                try:
                    return (await self.stub.EmitEvent(request, timeout=SECONDS)).event
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                await asyncio.sleep(_REDIAL)


@asynccontextmanager
async def session(
    it: World,
    task: str,
    work: Path | None = None,
    hands: tuple[str, ...] = ("shell",),
    *,
    orphan_deadline: float = 600.0,
    resources: tuple[tuple[str, str], ...] = (),
    agent: Mapping[str, Any] | None = None,
    hand: Mapping[str, Any] | None = None,
    user: str = "",
    **config: Any,
) -> AsyncIterator[Session]:
    """A session given a task; its hands work in `work`, or each in a folder of its own.

    `agent`: what its agent says beside its model; `hand`: what it says of its hands;
    `user`: the end user that it is for.
    """
    if work:
        config["workspace"] = str(work)
    spec = {
        "type": "process",
        "config": config,
        "orphan_deadline": orphan_deadline,
        "resources": resources,
        **(hand or {}),
    }
    plain = {"name": "t", "model": "practice", "harness": "tool_loop", "max_tokens": 1000}
    data = {
        "agent": plain | dict(agent or {}),
        "hands": dict.fromkeys(hands, spec),
        **({"user": user} if user else {}),
    }
    said = {"content": [{"type": "text", "text": task}]}
    events = [
        types_pb2.NewEvent(id=new_id("sevt"), type=kind, data=json.dumps(body).encode())
        for kind, body in (("session.updated", data), ("user.message", said))
    ]
    async with it.sessions() as stub:
        made = Session(new_id("sesn"), stub)
        await stub.CreateSession(
            session_pb2.CreateSessionRequest(session_id=made.session_id, events=events, wake=True),
            timeout=SECONDS,
        )
        following = asyncio.create_task(made.follow())
        try:
            yield made
        finally:
            following.cancel()
            await asyncio.wait({following})
        if not following.cancelled():
            following.result()  # it ended by itself, so it raises why


def one_effect(work: Path, made: Session) -> str:
    """The one line on disk, which the log must have as the one result's output."""
    effects = work / "effects"
    assert effects.exists(), "nothing happened; the log:\n" + made.text()
    lines = effects.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1, f"side effects: {lines}"
    assert len(made.results()) == 1, f"results: {made.results()}"
    assert made.results()[0].splitlines()[0] == lines[0], "the log has another output"
    return lines[0]


async def started(work: Path) -> None:
    """Until the call writes to the pipe `started`: it runs."""
    written = asyncio.Event()
    pipe = os.open(work / "started", os.O_RDONLY | os.O_NONBLOCK)
    try:
        asyncio.get_running_loop().add_reader(pipe, written.set)
        async with asyncio.timeout(SECONDS):
            await written.wait()
    finally:
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)


async def let_go(work: Path) -> None:
    """Let a call go on that waits at the pipe `go`, now or once it gets there."""
    await open_pipe(work / "go")


def pipes(work: Path) -> Path:
    """A folder with the pipes `started` and `go`."""
    work.mkdir(exist_ok=True)
    for name in ("started", "go"):
        os.mkfifo(work / name)
    return work


EFFECT = '$ echo > started; sleep {seconds}; echo "effect $(date +%s%N)-$$" | tee -a effects'
"""A call with a side effect nobody could guess; it takes `seconds`.

`started` may be a pipe that a test waits on.
"""
HELD = '$ echo > started; read x < go; echo "effect $(date +%s%N)-$$" | tee -a effects'
"""The same, but it takes until it is let go."""
