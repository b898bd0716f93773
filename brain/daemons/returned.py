"""Daemons that come back: what their hands have to tell wakes the sessions nobody drives.

A session whose call was given up goes on without it, and may be asleep by the
time its hand is heard of again. Its driver hears a hand that comes back by
itself (`brain/hands/late.py`). For one without a driver, the brain that has the
daemon's link appends a `hand.event` with a wake.
"""

import asyncio
import functools
import json
import logging
from collections.abc import Iterable
from typing import NamedTuple

from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import one
from brain.session.leases import is_live
from carpal.client import rpc_errors
from carpal.errors import CarpalError, Unreachable
from carpal.ids import new_id
from carpal.json_in import read_object
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

RETURNED = "returned"
"""The `kind` of the `hand.event`."""
_AT_ONCE = 8
"""Questions at a time, in turns: all daemons may come back in one moment, with many hands."""
_AGAIN = 5.0
"""Seconds between looks at a session that somebody drives, or of which the store said nothing."""
_LOOKS = 24
_STORE_LIMIT = 10.0
"""Seconds sessiond has to answer."""
_TOLD = 1_000
"""Hands of one daemon that are looked at, once for each session that has a share."""
_EVENTS = 1_000
"""The newest events of a log in which to look for what was given up."""
_TYPES = ("agent.tool_result", "hand.late_result", "hand.lost", "hand.released")


class Told(NamedTuple):
    """A hand that has something to tell, and who may be waiting for it."""

    session_id: str
    hand_id: str


class Returns:
    """Looks at each daemon that linked here: one look a daemon, for its newest link."""

    def __init__(self, fleet: Fleet, sessions: "session_pb2_grpc.SessionAsyncStub") -> None:
        self._fleet = fleet
        self._sessions = sessions
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._newest: dict[str, str] = {}
        """Daemons that came since, and their workspaces."""
        self._came = asyncio.Event()
        self._looks: dict[str, asyncio.Task[None]] = {}

    def came(self, daemon: str, workspace: str) -> None:
        """A daemon linked with something to tell; looking for an older link of it is over."""
        self._newest[daemon] = workspace
        self._came.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._came.wait()
                self._came.clear()
                newest, self._newest = self._newest, {}
                for daemon, workspace in newest.items():
                    if older := self._looks.get(daemon):
                        older.cancel()
                    look = group.create_task(self._look(daemon, workspace))
                    self._looks[daemon] = look
                    look.add_done_callback(functools.partial(self._looked, daemon))

    def _looked(self, daemon: str, look: "asyncio.Task[None]") -> None:
        if self._looks.get(daemon) is look:
            del self._looks[daemon]

    async def _look(self, daemon: str, workspace: str) -> None:
        """Wake whoever must hear of a daemon's hands; look again at those that are driven."""
        try:
            async with self._slots:
                told = await self._listed(daemon, workspace)
        except CarpalError as error:
            log.info("hands not listed", extra={"daemon": daemon, "error": str(error)})
            return
        for _ in range(_LOOKS):
            told = [each for each in told if await self._is_open(each, workspace, daemon)]
            if not told:
                return
            await asyncio.sleep(_AGAIN)

    async def _listed(self, daemon: str, workspace: str) -> list[Told]:
        connection = await self._fleet.connection(daemon, workspace)
        listed: hand_pb2.ListHandsResponse = await one(
            connection.call("list_hands", hand_pb2.ListHandsRequest())
        )
        told = [
            Told(session_id, hand.hand_id)
            for hand in listed.hands
            if hand.lost or hand.open_call_ids or hand.unacknowledged_call_ids
            for session_id in hand.session_ids
        ]
        if len(told) > _TOLD:
            log.warning("not all hands are looked at", extra={"daemon": daemon, "hands": len(told)})
        return told[:_TOLD]

    async def _is_open(self, told: Told, workspace: str, daemon: str) -> bool:
        """Whether to look again: a session's driver is to hear of a hand, or the store is away.

        Without a driver it is woken, if it must be. Whose hands a daemon has is its own word: of
        another workspace's it is not believed.
        """
        try:
            async with self._slots:
                with rpc_errors("sessiond"):
                    return await self._look_at(told, workspace, daemon)
        except CarpalError as error:
            log.info("session not woken", extra={"session": told.session_id, "error": str(error)})
            return isinstance(error, Unreachable)

    async def _look_at(self, told: Told, workspace: str, daemon: str) -> bool:
        request = session_pb2.GetSessionRequest(session_id=told.session_id)
        found = await self._sessions.GetSession(request, timeout=_STORE_LIMIT)
        if found.session.workspace != workspace:
            return False
        if not await self._waits(told.session_id, told.hand_id):
            return False
        if is_live(found.session.lease):
            return True
        await self._wake(told.session_id, daemon, told.hand_id)
        return False

    async def _waits(self, session_id: str, hand_id: str) -> bool:
        request = session_pb2.GetEventsRequest(
            session_id=session_id,
            order=types_pb2.EVENT_ORDER_NEWEST_FIRST,
            types=_TYPES,
            limit=_EVENTS,
        )
        answer = await self._sessions.GetEvents(request, timeout=_STORE_LIMIT)
        return waits(reversed(answer.events), hand_id)

    async def _wake(self, session_id: str, daemon: str, hand_id: str) -> None:
        data = {"hand_id": hand_id, "daemon": daemon, "kind": RETURNED}
        event = types_pb2.NewEvent(
            id=new_id("sevt"), type="hand.event", data=json.dumps(data).encode()
        )
        request = session_pb2.EmitEventRequest(session_id=session_id, event=event, wake=True)
        await self._sessions.EmitEvent(request, timeout=_STORE_LIMIT)
        log.info("a hand came back", extra={"session": session_id, "hand": hand_id})


def waits(events: Iterable[types_pb2.Event], hand_id: str) -> bool:
    """Whether a log, oldest first, gave something of a hand up that it may now hear of."""
    given_up: set[str] = set()
    for event in events:
        try:
            data = read_object(event.data, event.type)
        except CarpalError:
            continue  # redacted, or never ours
        if data.get("hand_id") != hand_id:
            continue
        call_id = str(data.get("tool_use_id", hand_id))
        if event.type == "hand.released":
            given_up.clear()
        elif event.type == "hand.late_result":
            given_up.discard(call_id)
        elif data.get("given_up"):
            given_up.add(call_id)
    return bool(given_up)
