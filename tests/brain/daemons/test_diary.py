"""Of a person who was in a hand the log says that they left, whatever was in the way of that."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brain.daemons.diary import Diary
from brain.daemons.fleet import Fleet
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity
from carpal.layers import Layer
from carpal.status import Reason
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.hands.place import until

OPENING = hand_pb2.TunnelOpen(
    hand_id="h",
    session_id="s",
    tunnel_id="t",
    workspace="ours",
    hand="shell",
    operator="spiffe://carpal.internal/operator/ann",
    kind="shell",
    take=True,
)


class Log:
    """Session `s` of workspace `ours`."""

    def __init__(self) -> None:
        self.events: dict[str, types_pb2.NewEvent] = {}
        self.refusals: list[CarpalError] = []
        """What the next appends are refused with, in turn."""
        self.answers_lost = 0
        """Appends that are done, and whose answer does not come."""
        self.asked = 0

    async def EmitEvent(self, request: session_pb2.EmitEventRequest, **_: float) -> None:
        """Append."""
        if self.refusals:
            raise self.refusals.pop(0)
        self.events.setdefault(request.event.id, request.event)
        if self.answers_lost:
            self.answers_lost -= 1
            raise refuse(Reason.UNREACHABLE, "no answer")

    async def GetSession(self, _request: object, **_: float) -> session_pb2.GetSessionResponse:
        """Whose it is."""
        self.asked += 1
        return session_pb2.GetSessionResponse(session=types_pb2.SessionInfo(workspace="ours"))

    async def GetEvents(self, _request: object, **_: float) -> session_pb2.GetEventsResponse:
        """Who came."""
        came = [
            types_pb2.Event(type=each.type, data=each.data)
            for each in self.events.values()
            if each.type == "hand.entered"
        ]
        return session_pb2.GetEventsResponse(events=came)

    def left(self) -> dict[str, Any] | None:
        """What it has of their leaving."""
        event = self.events.get("t_left")
        return event and json.loads(event.data)


class Box:
    """A daemon's end, and the fleet that it is."""

    def __init__(self) -> None:
        self.links = {"box": SimpleNamespace(identity=SimpleNamespace(workspace="ours"))}
        self.tunnels: list[hand_pb2.TunnelInfo] = []
        self.settled: list[str] = []

    def linked(self, _daemon: str, _principal: str) -> "Box":
        """The way to it."""
        return self

    async def call(self, arm: str, request: Any) -> AsyncGenerator[Any, None]:
        """Its answer."""
        if arm == "list_hands":
            there = [each for each in self.tunnels if each.tunnel_id not in self.settled]
            yield hand_pb2.ListHandsResponse(tunnels=there)
        else:
            self.settled += request.tunnel_ids
            yield pb.SettleTunnelsResponse()

    def ended(self, **more: Any) -> None:
        """A person left it, of which no brain told the log."""
        told = hand_pb2.TunnelInfo(tunnel_id="t", session_id="s", hand_id="h", hand="shell", **more)
        if not told.HasField("ended"):
            told.ended.GetCurrentTime()
        self.tunnels.append(told)


@asynccontextmanager
async def diary(log: Log, box: Box) -> AsyncIterator[Diary]:
    """One that writes."""
    me = cast(Identity, SimpleNamespace(uri="spiffe://carpal.internal/brain/b1"))
    made = Diary(cast(Fleet, box), cast("session_pb2_grpc.SessionAsyncStub", log), me)
    writing = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        writing.cancel()
        await asyncio.wait({writing})
        assert writing.cancelled(), writing.exception()


@pytest.mark.parametrize("reason", [Reason.STORE_FULL, Reason.UNREACHABLE, Reason.INTERNAL])
async def test_what_passes_as_a_full_disk_does_is_waited_out(reason: Reason) -> None:
    log, box = Log(), Box()
    async with diary(log, box) as made:
        await made.entered(OPENING, "box")
        log.refusals = [refuse(reason, "not now")]
        made.left(OPENING, "box", "its link ended", Layer.LINK)
        await until(lambda: bool(box.settled), "not settled")
    left = log.left()
    assert left is not None
    assert (left["because"], left["layer"]) == ("its link ended", "link")


async def test_a_session_that_is_gone_is_not_written_to_for_ever() -> None:
    log, box = Log(), Box()
    async with diary(log, box) as made:
        await made.entered(OPENING, "box")
        log.refusals = [refuse(Reason.SESSION_NOT_FOUND, "deleted")]
        made.left(OPENING, "box", "they left")
        await until(lambda: box.settled == ["t"], "not settled")
    assert log.left() is None


async def test_who_was_let_in_by_the_log_and_no_further_is_said_to_have_left() -> None:
    log, box = Log(), Box()
    async with diary(log, box) as made:
        log.answers_lost = 1
        box.ended(because="the brain did not say that the log has it")
        with pytest.raises(CarpalError):
            await made.entered(OPENING, "box")
        await until(lambda: log.left() is not None, "not written")
        await until(lambda: box.settled == ["t"], "not settled")


async def test_a_daemon_that_says_nonsense_of_its_people_ends_nothing() -> None:
    log, box = Log(), Box()
    async with diary(log, box) as made:
        await made.entered(OPENING, "box")
    async with diary(log, box) as made:  # another brain's
        box.ended(because="x" * 100_000)
        box.tunnels[0].ended.seconds = 10**15
        made.came("box", "ours")
        await until(lambda: box.settled == ["t"], "not settled")
    left = log.left()
    assert left is not None
    assert (len(left["because"]), left["name"], "at" in left) == (300, "shell", False)


async def test_a_log_that_cannot_be_asked_is_asked_again() -> None:
    log, box = Log(), Box()
    async with diary(log, box) as made:
        await made.entered(OPENING, "box")
    async with diary(log, box) as made:
        box.ended(because="the daemon ended")
        log.refusals = [refuse(Reason.STORE_FULL, "not now")]
        made.came("box", "ours")
        await until(lambda: log.left() is not None, "not written")
