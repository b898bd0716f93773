"""What hands say unasked: once in the log of each session that has a share, and then acknowledged.

The brain that has a daemon's link asks it, over and over, for what no log has yet. An event's id
in a log is made of the hand's and its own, so whoever writes it again, after whatever death,
writes nothing. A session whose agent wants to hear is woken.
"""

import asyncio
import functools
import hashlib
import json
import logging
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from brain.daemons.emitting import FOR_GOOD, STORE_LIMIT, at, emit
from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import Linked
from brain.session.unasked import wanted
from carpal.backoff import Backoff
from carpal.client import rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.identity import Identity
from carpal.json_in import read_object
from carpal.status import Reason
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

EVENTS = "events"
"""The capability of a type whose hands say things."""
_TRIES = 30
"""Questions that fail one after the other: by then its link is another brain's."""
_DATA_MAX = 64 * 1024
"""Bytes of an event's JSON; no daemon of ours sends more than 16 KiB and what escapes add."""
_TYPES = ("session.updated", "hand.provision_requested")
_EVENTS = 1_000
"""The newest of those types in a log."""


class Hearing:
    """Hears the daemons that are linked here: one question at a time for each."""

    def __init__(
        self, fleet: Fleet, sessions: "session_pb2_grpc.SessionAsyncStub", me: Identity
    ) -> None:
        self._fleet = fleet
        self._sessions = sessions
        self._me = me
        self._newest: dict[str, str] = {}
        """Daemons that came since, and their workspaces."""
        self._came = asyncio.Event()
        self._asking: dict[str, asyncio.Task[None]] = {}

    def came(self, daemon: str, workspace: str, hello: pb.Hello) -> None:
        """A daemon links; hearing an older link of it is over."""
        if any(EVENTS in kind.capabilities for kind in hello.types):
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
                    if older := self._asking.get(daemon):
                        older.cancel()
                    asking = group.create_task(self._hear(daemon, workspace))
                    self._asking[daemon] = asking
                    asking.add_done_callback(functools.partial(self._ended, daemon))

    def _ended(self, daemon: str, asking: "asyncio.Task[None]") -> None:
        if self._asking.get(daemon) is asking:
            del self._asking[daemon]

    async def _hear(self, daemon: str, workspace: str) -> None:
        """Until its link is gone, or it cannot be asked."""
        acknowledged: list[hand_pb2.EventKey] = []
        backoff, failed = Backoff(0.1, 2.0), 0
        while failed < _TRIES:
            try:
                said = await self._ask(daemon, workspace, acknowledged)
            except CarpalError as error:
                if error.reason is Reason.NOT_BUILT:
                    return
                failed += 1
                await asyncio.sleep(backoff.next())
                continue
            backoff, failed, acknowledged = Backoff(0.1, 2.0), 0, []
            for each in said:
                await self._write(each, daemon, workspace)
                acknowledged.append(hand_pb2.EventKey(hand_id=each.hand_id, event_id=each.event_id))
        log.info("a daemon's hands are not heard", extra={"daemon": daemon})

    async def _ask(
        self, daemon: str, workspace: str, acknowledged: list[hand_pb2.EventKey]
    ) -> list[hand_pb2.EventsResponse]:
        link = self._fleet.links.get(daemon)
        if link is None or link.identity.workspace != workspace:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon} is not linked here")
        asked: Linked = self._fleet.linked(daemon, self._me.uri)
        request = hand_pb2.EventsRequest(acknowledged=acknowledged)
        async with aclosing(asked.call("events", request)) as answer:
            return [each async for each in answer if each.event_id]

    async def _write(self, said: hand_pb2.EventsResponse, daemon: str, workspace: str) -> None:
        """Into the log of each session that has a share, for as long as sessiond is away."""
        for session_id in said.session_ids:
            backoff = Backoff(0.2, 5.0)
            while True:
                try:
                    with rpc_errors("sessiond"):
                        await self._write_one(session_id, said, daemon, workspace)
                    break
                except CarpalError as error:
                    about = {"session": session_id, "hand": said.hand_id, "why": str(error)}
                    log.warning("what a hand says is not written", extra=about)
                    if isinstance(error, FOR_GOOD):
                        break
                await asyncio.sleep(backoff.next())

    async def _write_one(
        self, session_id: str, said: hand_pb2.EventsResponse, daemon: str, workspace: str
    ) -> None:
        """What a daemon says of its hands is believed as far as the log gave it that hand."""
        found = await self._sessions.GetSession(
            session_pb2.GetSessionRequest(session_id=session_id), timeout=STORE_LIMIT
        )
        request = session_pb2.GetEventsRequest(
            session_id=session_id,
            order=types_pb2.EVENT_ORDER_NEWEST_FIRST,
            types=_TYPES,
            limit=_EVENTS,
        )
        events = (await self._sessions.GetEvents(request, timeout=STORE_LIMIT)).events
        name, spec = _known(events, said.hand_id, daemon)
        if found.session.workspace != workspace or not name:
            about = {"session": session_id, "hand": said.hand_id, "daemon": daemon}
            log.warning("a daemon speaks of a hand that is not its own", extra=about)
            return
        if len(said.data) > _DATA_MAX:
            log.warning("what a hand says is too large", extra={"hand": said.hand_id})
            return
        data = {
            "hand_id": said.hand_id,
            "name": name,
            "daemon": daemon,
            "event_id": said.event_id,
            "kind": said.kind,
            "data": read_object(said.data, "data"),
            **at(said.time),
        }
        event = types_pb2.NewEvent(
            id=event_id(said.hand_id, said.event_id),
            type="hand.event",
            data=json.dumps(data).encode(),
        )
        point("brain.event.before_written")
        await emit(self._sessions, session_id, event, wake=wanted(spec, said.kind))
        point("brain.event.written")


def event_id(hand_id: str, said: str) -> str:
    """Of the `hand.event`: the same whoever writes it."""
    digest = hashlib.sha256(f"{hand_id}/{said}".encode()).hexdigest()
    return f"hevt_{digest[:40]}"


def _known(
    events: Iterable[types_pb2.Event], hand_id: str, daemon: str
) -> tuple[str, dict[str, Any]]:
    """A hand's name in a log, newest first, and what the agent says of it; empty if not there."""
    name, specs = "", None
    for event in events:
        try:
            data = read_object(event.data, event.type)
        except CarpalError:
            continue  # redacted
        if event.type == "session.updated":
            specs = data.get("hands") if specs is None else specs
        elif data.get("hand_id") == hand_id and data.get("daemon") == daemon:
            name = str(data.get("name", ""))
    spec = specs.get(name) if isinstance(specs, dict) else None
    return name, spec if isinstance(spec, dict) else {}
