"""Daemons that come back: what their hands have to tell wakes the sessions nobody drives.

A session whose call was given up goes on without it, and may be asleep by the
time its hand is heard of again. Its driver hears a hand that comes back by
itself (`brain/late.py`). For one without a driver, the brain that has the
daemon's link appends a `hand.event` with a wake.
"""

import asyncio
import json
import logging
from collections.abc import Iterable

from brain.fleet import Fleet
from brain.hands_at import one
from brain.leases import is_live
from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.ids import new_id
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

RETURNED = "returned"
"""The `kind` of the `hand.event`."""
_AT_ONCE = 8
"""Daemons asked at a time: all of them may come back in one moment."""
_AGAIN = 5.0
"""Seconds between looks at a session that somebody drives."""
_LOOKS = 24
_STORE_LIMIT = 10.0
"""Seconds sessiond has to answer."""
_EVENTS = 1_000
"""The newest events of a log in which to look for what was given up."""
_TYPES = ("agent.tool_result", "hand.late_result", "hand.lost", "hand.released")


class Returns:
    """Looks at each daemon that linked here, once a link."""

    def __init__(
        self,
        fleet: Fleet,
        came: "asyncio.Queue[tuple[str, str]]",
        sessions: "session_pb2_grpc.SessionAsyncStub",
    ) -> None:
        """`came`: daemons with something to tell, and their workspaces."""
        self._fleet = fleet
        self._came = came
        self._sessions = sessions
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._look(*await self._came.get()))

    async def _look(self, daemon: str, workspace: str) -> None:
        """Wake whoever must hear of a daemon's hands; the next link looks anew."""
        try:
            async with self._slots:
                connection = await self._fleet.connection(daemon, workspace)
                listed: hand_pb2.ListHandsResponse = await one(
                    connection.call("list_hands", hand_pb2.ListHandsRequest())
                )
            async with asyncio.TaskGroup() as group:
                for hand in listed.hands:
                    if hand.lost or hand.open_call_ids or hand.unacknowledged_call_ids:
                        for session_id in hand.session_ids:
                            group.create_task(
                                self._tell(session_id, workspace, daemon, hand.hand_id)
                            )
        except CarpalError as error:
            log.info("hands not listed", extra={"daemon": daemon, "error": str(error)})

    async def _tell(self, session_id: str, workspace: str, daemon: str, hand_id: str) -> None:
        """Wake a session that gave something of the hand up, unless its driver hears it.

        Whose hands a daemon has is its own word: of another workspace's it is not believed.
        """
        try:
            for _ in range(_LOOKS):
                with rpc_errors("sessiond"):
                    request = session_pb2.GetSessionRequest(session_id=session_id)
                    told = await self._sessions.GetSession(request, timeout=_STORE_LIMIT)
                    if told.session.workspace != workspace:
                        return
                    if not await self._waits(session_id, hand_id):
                        return
                    if not is_live(told.session.lease):
                        await self._wake(session_id, daemon, hand_id)
                        return
                await asyncio.sleep(_AGAIN)
        except CarpalError as error:
            log.info("session not woken", extra={"session": session_id, "error": str(error)})

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
            data = json.loads(event.data)
        except ValueError:
            continue  # redacted, or never ours
        if not isinstance(data, dict) or data.get("hand_id") != hand_id:
            continue
        call_id = str(data.get("tool_use_id", hand_id))
        if event.type == "hand.released":
            given_up.clear()
        elif event.type == "hand.late_result":
            given_up.discard(call_id)
        elif data.get("given_up"):
            given_up.add(call_id)
    return bool(given_up)
