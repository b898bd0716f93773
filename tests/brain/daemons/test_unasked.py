"""What hands say unasked is in the log, whatever is in the way; no daemon ends a brain by it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brain.daemons.fleet import Fleet
from brain.daemons.unasked import Hearing
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.hands.place import until


class Log:
    """Session `s` of workspace `ours`, which has hand `h` of daemon `box`."""

    def __init__(self, workspace: str = "ours", **hand: Any) -> None:
        self.workspace = workspace
        self.hand = {"hand_id": "h", "name": "shell", "daemon": "box", **hand}
        self.events: list[dict[str, Any]] = []
        self.refusals: list[CarpalError] = []

    async def EmitEvent(self, request: session_pb2.EmitEventRequest, **_: float) -> None:
        """Append."""
        if self.refusals:
            raise self.refusals.pop(0)
        self.events.append(json.loads(request.event.data))

    async def GetSession(self, _request: object, **_: float) -> session_pb2.GetSessionResponse:
        """Whose it is."""
        return session_pb2.GetSessionResponse(
            session=types_pb2.SessionInfo(workspace=self.workspace)
        )

    async def GetEvents(self, _request: object, **_: float) -> session_pb2.GetEventsResponse:
        """Its hand."""
        data = json.dumps(self.hand).encode()
        made = types_pb2.Event(type="hand.provision_requested", data=data)
        return session_pb2.GetEventsResponse(events=[made])


class Box:
    """A daemon's end, and the fleet that it is."""

    def __init__(self, *said: hand_pb2.EventsResponse) -> None:
        self.links = {"box": SimpleNamespace(identity=SimpleNamespace(workspace="ours"))}
        self.said = list(said)
        self.kept: set[str] = set()

    def linked(self, _daemon: str, _principal: str) -> "Box":
        """The way to it."""
        return self

    async def call(
        self, _arm: str, request: hand_pb2.EventsRequest
    ) -> AsyncGenerator[hand_pb2.EventsResponse, None]:
        """What no log has."""
        self.kept |= {key.event_id for key in request.acknowledged}
        there = [each for each in self.said if each.event_id not in self.kept]
        if not there:
            await asyncio.Event().wait()
        for each in there:
            yield each


def event(event_id: str, **more: Any) -> hand_pb2.EventsResponse:
    """One, of hand `h`."""
    said = {"kind": "battery", "data": b"{}", **more}
    return hand_pb2.EventsResponse(hand_id="h", event_id=event_id, session_ids=["s"], **said)


async def heard(log: Log, box: Box) -> None:
    """Until all of it is acknowledged."""
    me = cast(Identity, SimpleNamespace(uri="spiffe://carpal.internal/brain/b1"))
    hearing = Hearing(cast(Fleet, box), cast("session_pb2_grpc.SessionAsyncStub", log), me)
    running = asyncio.create_task(hearing.run())
    kinds = [hand_pb2.HandTypeInfo(type="t", capabilities=["events"])]
    hearing.came("box", "ours", pb.Hello(types=kinds))
    try:
        wanted = {each.event_id for each in box.said}
        await until(lambda: running.done() or box.kept == wanted, "not acknowledged")
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert running.cancelled(), running.exception()


@pytest.mark.parametrize("reason", [Reason.STORE_FULL, Reason.UNREACHABLE, Reason.INTERNAL])
async def test_what_passes_as_a_full_disk_does_is_waited_out(reason: Reason) -> None:
    log = Log()
    log.refusals = [refuse(reason, "not now")]
    await heard(log, Box(event("e1")))
    assert [each["event_id"] for each in log.events] == ["e1"]


async def test_a_daemon_that_says_nonsense_ends_nothing_and_what_else_it_says_is_heard() -> None:
    wrong = event("e1")
    wrong.time.seconds = 10**15
    log = Log()
    await heard(log, Box(wrong, event("e2", data=b"\xff"), event("e3")))
    assert [each["event_id"] for each in log.events] == ["e1", "e3"]
    assert "at" not in log.events[0]


@pytest.mark.parametrize(
    "log",
    [
        Log(hand_id="another"),
        Log(daemon="theirs"),
        Log("another"),
        Log(hand_id="h2", daemon="theirs"),
    ],
    ids=["no such hand", "the hand is another daemon's", "another workspace", "neither"],
)
async def test_a_daemon_puts_nothing_in_a_session_whose_hand_it_does_not_have(log: Log) -> None:
    """Which sessions an event is for is the daemon's word, and so is its hand: the log is asked."""
    await heard(log, Box(event("e1")))
    assert log.events == []
