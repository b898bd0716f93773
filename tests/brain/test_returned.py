"""A daemon that comes back wakes the sessions of its hands, and no others."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from brain.fleet import Fleet
from brain.returned import Returns
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2
from tests.hands.place import until


class Returning:
    """A fleet of one daemon, which says that session `s` has a share of its lost hand `h`."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def connection(self, _daemon: str, _workspace: str) -> "Returning":
        """The way to it."""
        return self

    async def call(self, _arm: str, _request: object) -> AsyncGenerator[Any, None]:
        """Its hands."""
        hand = hand_pb2.HandInfo(hand_id="h", lost=True, session_ids=["s"])
        yield hand_pb2.ListHandsResponse(hands=[hand])


class Sessions:
    """Session `s` of workspace `ours`, which gave the hand up and sleeps."""

    def __init__(self) -> None:
        self.looked = 0
        self.woken: list[session_pb2.EmitEventRequest] = []

    async def GetSession(self, _request: object, **_: float) -> session_pb2.GetSessionResponse:
        """Whose it is."""
        self.looked += 1
        return session_pb2.GetSessionResponse(session=types_pb2.SessionInfo(workspace="ours"))

    async def GetEvents(self, _request: object, **_: float) -> session_pb2.GetEventsResponse:
        """What it gave up."""
        data = json.dumps({"hand_id": "h", "given_up": True}).encode()
        return session_pb2.GetEventsResponse(events=[types_pb2.Event(type="hand.lost", data=data)])

    async def EmitEvent(
        self, request: session_pb2.EmitEventRequest, **_: float
    ) -> session_pb2.EmitEventResponse:
        """A wake."""
        self.woken.append(request)
        return session_pb2.EmitEventResponse()


@pytest.mark.parametrize(("workspace", "wakes"), [("ours", 1), ("theirs", 0)])
async def test_a_session_is_woken_by_a_daemon_of_its_own_workspace_alone(
    workspace: str, wakes: int
) -> None:
    fleet, sessions = Returning(), Sessions()
    stub = cast("session_pb2_grpc.SessionAsyncStub", sessions)
    running = asyncio.create_task(Returns(cast("Fleet", fleet), fleet.came, stub).run())
    fleet.came.put_nowait(("d", workspace))
    await until(lambda: sessions.looked, "it did not look")
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(sessions.woken) == wakes
    running.cancel()
