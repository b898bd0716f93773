"""What logs have of people in hands: `hand.entered` before anything is passed on, then `hand.left`.

A brain that let a person in may die before it has written that they left. So
the daemon keeps what it has not heard to be written, and whichever brain it
links to next writes that. Of what a person typed nothing is here.
"""

import asyncio
import json
import logging
from typing import Any, NamedTuple

from brain.daemons.emitting import FOR_GOOD, STORE_LIMIT, at, emit
from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import Linked, one
from carpal.backoff import Backoff
from carpal.client import rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity
from carpal.json_in import read_object
from carpal.layers import Layer
from carpal.status import Reason
from carpal.v1 import hand_pb2, session_pb2, session_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

ENTERED, LEFT = "hand.entered", "hand.left"
_AGAIN = 1.0
"""Seconds between looks at a daemon whose people are on their way out."""
_LOOKS = 30
_EVENTS = 1_000
"""The newest events in which a tunnel is looked for."""
_BECAUSE_MAX = 300
"""Characters of why one ended: a hand, or its daemon, may have said it."""


class _Stay(NamedTuple):
    """One that is over."""

    tunnel_id: str
    session_id: str
    data: dict[str, Any]
    daemon: str
    workspace: str


class Diary:
    """Writes for the daemons that are, or were, linked here."""

    def __init__(
        self, fleet: Fleet, sessions: "session_pb2_grpc.SessionAsyncStub", me: Identity
    ) -> None:
        self._fleet = fleet
        self._me = me
        self._sessions = sessions
        self._inside: set[str] = set()
        """Tunnels that this brain carries, or just carried."""
        self._todo: asyncio.Queue[_Stay | tuple[str, str]] = asyncio.Queue()

    async def entered(self, opening: hand_pb2.TunnelOpen, daemon: str) -> None:
        """Write that a person enters. Raises what sessiond refuses: then they do not.

        It may be in the log all the same, when the answer was lost: then that they left is, too.
        """
        about = {
            **_about(opening.tunnel_id, opening.hand_id, opening.hand),
            "daemon": daemon,
            "by": opening.operator,
            "kind": opening.kind,
            "control": opening.take,
        }
        self._inside.add(opening.tunnel_id)
        try:
            await self._emit(opening.session_id, opening.tunnel_id, ENTERED, about)
        except BaseException as error:
            self._inside.discard(opening.tunnel_id)
            if not isinstance(error, FOR_GOOD):
                self.came(daemon, opening.workspace)
            raise

    def left(
        self,
        opening: hand_pb2.TunnelOpen,
        daemon: str,
        because: str,
        layer: Layer | None = None,
    ) -> None:
        """Have it written that they left, for as long as this brain lives.

        `layer` is the part that failed, if one did.
        """
        about = _about(opening.tunnel_id, opening.hand_id, opening.hand)
        data = {**about, "because": because[:_BECAUSE_MAX]}
        if layer is not None:
            data["layer"] = str(layer)
        self._todo.put_nowait(
            _Stay(opening.tunnel_id, opening.session_id, data, daemon, opening.workspace)
        )

    def came(self, daemon: str, workspace: str) -> None:
        """A daemon linked with something that may be of people."""
        self._todo.put_nowait((daemon, workspace))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                match await self._todo.get():
                    case _Stay() as stay:
                        group.create_task(self._write(stay))
                    case (daemon, workspace):
                        group.create_task(self._look(daemon, workspace))

    async def _write(self, stay: _Stay) -> None:
        backoff = Backoff(0.2, 5.0)
        while True:
            try:
                await self._emit(stay.session_id, stay.tunnel_id, LEFT, stay.data)
                break
            except CarpalError as error:
                about = {"session": stay.session_id, "tunnel": stay.tunnel_id, "why": str(error)}
                log.warning("not written that a person left", extra=about)
                if isinstance(error, FOR_GOOD):
                    break
            await asyncio.sleep(backoff.next())
        await self._settle(stay.daemon, stay.workspace, [stay.tunnel_id])
        self._inside.discard(stay.tunnel_id)

    async def _look(self, daemon: str, workspace: str) -> None:
        """Write what brains before this one did not, once its daemon says that it is over."""
        for _ in range(_LOOKS):
            try:
                asked = self._linked(daemon, workspace)
                listed: hand_pb2.ListHandsResponse = await one(
                    asked.call("list_hands", hand_pb2.ListHandsRequest())
                )
            except CarpalError as error:
                log.info("tunnels not listed", extra={"daemon": daemon, "why": str(error)})
                return  # it links again
            told = [each for each in listed.tunnels if each.tunnel_id not in self._inside]
            over = [each for each in told if each.HasField("ended")]
            written = [await self._late(each, daemon, workspace) for each in over]
            if len(over) == len(told) and all(written):
                return
            await asyncio.sleep(_AGAIN)

    async def _late(self, told: hand_pb2.TunnelInfo, daemon: str, workspace: str) -> bool:
        """Write what a daemon says of its people, as far as the log knows that they came.

        False when the log could not be asked: look again.
        """
        try:
            entered = await self._entered(told, daemon, workspace)
        except CarpalError as error:
            log.info("log not read", extra={"session": told.session_id, "why": str(error)})
            if not isinstance(error, FOR_GOOD):
                return False
            entered = None
        if entered is None:  # nothing was passed on before the log had it
            await self._settle(daemon, workspace, [told.tunnel_id])
            return True
        about = {name: entered.get(name) for name in ("tunnel_id", "hand_id", "name")}
        data = {**about, "because": told.because[:_BECAUSE_MAX], **at(told.ended)}
        self._inside.add(told.tunnel_id)
        await self._write(_Stay(told.tunnel_id, told.session_id, data, daemon, workspace))
        return True

    async def _entered(
        self, told: hand_pb2.TunnelInfo, daemon: str, workspace: str
    ) -> dict[str, Any] | None:
        """What the log has of their coming."""
        with rpc_errors("sessiond"):
            found = await self._sessions.GetSession(
                session_pb2.GetSessionRequest(session_id=told.session_id), timeout=STORE_LIMIT
            )
            if found.session.workspace != workspace:
                return None
            request = session_pb2.GetEventsRequest(
                session_id=told.session_id,
                order=types_pb2.EVENT_ORDER_NEWEST_FIRST,
                types=[ENTERED],
                limit=_EVENTS,
            )
            events = (await self._sessions.GetEvents(request, timeout=STORE_LIMIT)).events
        for event in events:
            if (data := _of(event, told.tunnel_id, daemon)) is not None:
                return data
        return None

    async def _emit(self, session_id: str, tunnel_id: str, kind: str, data: dict[str, Any]) -> None:
        event_id = f"{tunnel_id}_{kind.rpartition('.')[2]}"
        event = types_pb2.NewEvent(id=event_id, type=kind, data=json.dumps(data).encode())
        await emit(self._sessions, session_id, event)

    async def _settle(self, daemon: str, workspace: str, tunnel_ids: list[str]) -> None:
        try:
            request = pb.SettleTunnelsRequest(tunnel_ids=tunnel_ids)
            await one(self._linked(daemon, workspace).call("settle_tunnels", request))
        except CarpalError as error:
            # It tells of them again when it links again.
            log.info("tunnels not settled", extra={"daemon": daemon, "why": str(error)})

    def _linked(self, daemon: str, workspace: str) -> Linked:
        link = self._fleet.links.get(daemon)
        if link is None or link.identity.workspace != workspace:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon} is not linked here")
        return self._fleet.linked(daemon, self._me.uri)


def _about(tunnel_id: str, hand_id: str, name: str) -> dict[str, Any]:
    return {"tunnel_id": tunnel_id, "hand_id": hand_id, "name": name}


def _of(event: types_pb2.Event, tunnel_id: str, daemon: str) -> dict[str, Any] | None:
    """What the event says, if it is of that tunnel."""
    try:
        data = read_object(event.data, event.type)
    except CarpalError:
        return None  # redacted
    same = data.get("tunnel_id") == tunnel_id and data.get("daemon") == daemon
    return data if same else None
