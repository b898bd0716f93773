"""A daemon that comes back wakes the sessions of its hands, and no others."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from brain.daemons.fleet import Fleet
from brain.daemons.returned import _AT_ONCE, Returns
from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2
from tests.hands.place import until


class Returning:
    """A fleet of one daemon, which says that sessions have a share of its lost hand `h`."""

    def __init__(self, *sessions: str) -> None:
        self.sessions = sessions
        self.asked: list[str] = []
        """Of which workspaces' links it was asked."""
        self.asking = self.most = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def connection(self, _daemon: str, workspace: str) -> "Returning":
        """The way to it."""
        self.asked.append(workspace)
        return self

    async def call(self, _arm: str, _request: object) -> AsyncGenerator[Any, None]:
        """Its hands, once it answers."""
        self.asking += 1
        self.most = max(self.most, self.asking)
        try:
            await self.answers.wait()
        finally:
            self.asking -= 1
        hand = hand_pb2.HandInfo(hand_id="h", lost=True, session_ids=self.sessions)
        yield hand_pb2.ListHandsResponse(hands=[hand])


class Sessions:
    """Session `s` of workspace `ours`, which gave the hand up and sleeps."""

    def __init__(self) -> None:
        self.looked = self.looking = self.most = 0
        self.woken: list[session_pb2.EmitEventRequest] = []
        self.away = False

    async def GetSession(self, _request: object, **_: float) -> session_pb2.GetSessionResponse:
        """Whose it is."""
        self.looking += 1
        self.most = max(self.most, self.looking)
        await asyncio.sleep(0)
        self.looking -= 1
        self.looked += 1
        if self.away:
            raise refuse(Reason.UNREACHABLE, "sessiond restarts")
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


@asynccontextmanager
async def looking(fleet: Returning, sessions: Sessions) -> AsyncIterator[Returns]:
    """What looks at the daemons that come back."""
    stub = cast("session_pb2_grpc.SessionAsyncStub", sessions)
    returns = Returns(cast("Fleet", fleet), stub)
    running = asyncio.create_task(returns.run())
    yield returns
    running.cancel()
    await asyncio.wait({running})


async def turns() -> None:
    """Whatever can go on does."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("workspace", "wakes"), [("ours", 1), ("theirs", 0)])
async def test_a_session_is_woken_by_a_daemon_of_its_own_workspace_alone(
    workspace: str, wakes: int
) -> None:
    fleet, sessions = Returning("s"), Sessions()
    async with looking(fleet, sessions) as returns:
        returns.came("d", workspace)
        await until(lambda: sessions.looked, "it did not look")
        await turns()
        assert len(sessions.woken) == wakes


async def test_a_daemon_that_links_again_and_again_is_looked_at_once_for_its_newest_link() -> None:
    fleet, sessions = Returning("s"), Sessions()
    fleet.answers.clear()
    async with looking(fleet, sessions) as returns:
        for link in range(100):
            returns.came("d", f"link {link}")
            await turns()
            assert fleet.asking == 1
            assert len(returns._looks) == 1
        returns.came("d", "not looked at: there is a newer one")
        returns.came("d", "ours")
        fleet.answers.set()
        await until(lambda: sessions.woken, "it did not look")
        await turns()
        assert (fleet.most, fleet.asked[-2:]) == (1, ["link 99", "ours"])
        assert (len(sessions.woken), returns._looks) == (1, {})


async def test_a_session_of_which_the_store_says_nothing_now_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("brain.daemons.returned._AGAIN", 0.01)
    fleet, sessions = Returning("s"), Sessions()
    sessions.away = True
    async with looking(fleet, sessions) as returns:
        returns.came("d", "ours")
        await until(lambda: sessions.looked, "it did not look")
        sessions.away = False
        await until(lambda: sessions.woken, "it did not look again")
        assert len(sessions.woken) == 1


async def test_daemons_with_many_hands_keep_no_other_waiting() -> None:
    fleet, sessions = Returning(*(f"s{n}" for n in range(500))), Sessions()
    async with looking(fleet, sessions) as returns:
        for daemon in range(_AT_ONCE):
            returns.came(f"d{daemon}", "ours")
        await until(lambda: sessions.looked, "it did not look")
        returns.came("last", "ours")
        await until(lambda: any(b"last" in w.event.data for w in sessions.woken), "it waits")
        assert len(sessions.woken) < _AT_ONCE * 100


async def test_many_daemons_with_many_hands_are_looked_at_a_few_at_a_time() -> None:
    fleet, sessions = Returning(*(f"s{n}" for n in range(30))), Sessions()
    async with looking(fleet, sessions) as returns:
        for daemon in range(30):
            returns.came(f"d{daemon}", "ours")
        await until(lambda: len(sessions.woken) == 30 * 30, "not all were looked at")
        assert max(fleet.most, sessions.most) <= _AT_ONCE
