"""The Orchestrator service: the daemons' end of the link, and what operators see."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing

from brain.daemons import attach, states
from brain.daemons.admission import Admission
from brain.daemons.blobs import BlobRelay
from brain.daemons.daemon_link import DaemonLink
from brain.daemons.fleet import Fleet
from brain.daemons.gate import Record, refused
from brain.daemons.hands_at import Peers, one
from brain.daemons.past import LINKS_MAX, Refused
from brain.daemons.people import People, asked
from brain.follower import Follower
from brain.session.watch import WatchHub
from carpal.client import rpc_errors
from carpal.errors import CarpalError, given, invalid, refuse
from carpal.identity import BACKDATE, Identity, Role
from carpal.link_answers import not_here
from carpal.process import only_error
from carpal.revocations import Revocations
from carpal.server import Context, caller
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2_grpc, session_pb2, session_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

_STORE_LIMIT = 10.0
"""Seconds sessiond has to answer."""
_HOP_LIMIT = 3.0
"""Seconds another brain has to answer."""
_INVENTORY_LIMIT = 5.0
"""Seconds a daemon has to list its hands before it is left out."""


class OrchestratorService(orchestrator_pb2_grpc.OrchestratorServicer):
    """Connect, Watch, Wake and the lists."""

    def __init__(
        self,
        sessions: "session_pb2_grpc.SessionAsyncStub",
        fleet: Fleet,
        admission: Admission,
        hub: WatchHub,
        peers: Peers,
        *,
        people: People,
        me: Identity,
        lease_left: Callable[[], float],
        providers: Iterable[str] = (),
        revocations: Revocations | None = None,
    ) -> None:
        """`providers`: names of those that this brain asks models at."""
        self._providers = sorted(providers)
        self._revocations = revocations or Revocations()
        self._refused = Refused(me.name)
        self._sessions = sessions
        self._fleet = fleet
        self._admission = admission
        self._hub = hub
        self._peers = peers
        self._people = people
        self._follower = Follower(sessions, peers, me.uri)
        self._lease_left = lease_left
        self._blobs = BlobRelay(sessions)
        self._me = me.name

    async def Connect(  # type: ignore[override] # it writes by context, which the stubs leave out
        self, request_iterator: AsyncIterator[pb.ConnectRequest], context: Context
    ) -> None:
        """One daemon's control stream, for as long as it lasts."""
        link = DaemonLink(caller(context), self._lease_left)
        try:
            await link.serve(request_iterator, context, self._admission.admit)
        except BaseException as raised:
            error = only_error(raised)
            if isinstance(error, CarpalError) and not link.welcomed_at:
                self._refused.add(link.identity.workspace, link.daemon_id, error)
            raise
        finally:
            await self._fleet.links.left(link)

    async def Attach(  # type: ignore[override] # it writes by context, which the stubs leave out
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: Context
    ) -> None:
        """One call's large output, for as long as somebody reads it."""
        opening = await attach.opening(request_iterator)
        link = self._fleet.links.of(caller(context))
        if link is None:
            raise not_here(opening)
        await link.attach(opening, request_iterator, context)

    async def ReadBlob(
        self, request: pb.ReadBlobRequest, context: Context
    ) -> AsyncIterator[pb.ReadBlobResponse]:
        """A blob that a hand on the caller mounts."""
        async with aclosing(self._blobs.read(request, caller(context))) as pieces:
            async for piece in pieces:
                yield piece

    async def WriteBlob(
        self, request_iterator: AsyncIterator[pb.WriteBlobRequest], context: Context
    ) -> pb.WriteBlobResponse:
        """A blob that a hand on the caller made."""
        return await self._blobs.write(request_iterator, caller(context))

    async def Enter(
        self, request_iterator: AsyncIterator[pb.EnterRequest], context: Context
    ) -> AsyncIterator[pb.EnterResponse]:
        """A person in a hand of a session, for as long as they stay."""
        who = caller(context)
        opening = await asked(request_iterator)
        await self._session(opening.session_id, who)
        async with aclosing(self._people.enter(opening, request_iterator, who)) as came:
            async for said in came:
                yield said

    async def Wake(self, request: pb.WakeRequest, context: Context) -> pb.WakeResponse:
        """An append that carries a wake."""
        await self._session(request.session_id, caller(context))
        emit = session_pb2.EmitEventRequest(
            session_id=request.session_id, event=request.event, wake=True
        )
        with rpc_errors("sessiond"):
            answer = await self._sessions.EmitEvent(emit, timeout=_STORE_LIMIT)
        return pb.WakeResponse(event=answer.event)

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """A session's moments, from here or from the brain that drives it."""
        who = caller(context)
        await self._session(request.session_id, who)
        with self._hub.watching(request.session_id) as moments:
            # A brain that asks is itself the one hop.
            elsewhere = who.role is not Role.BRAIN
            follow = self._follower.each(request.session_id, moments)
            async with aclosing(follow if elsewhere else moments.each()) as given:
                async for moment in given:
                    yield moment

    async def ListDaemons(
        self, request: pb.ListDaemonsRequest, context: Context
    ) -> pb.ListDaemonsResponse:
        """The workspace's daemons, wherever they are linked, as the brains there know them."""
        who = caller(context)
        workspace = _workspace(request.workspace, who)
        known = {each.daemon_id: each for each in self._fleet.daemons(workspace)}
        if who.role is not Role.BRAIN:  # a brain that asks is itself the one hop
            elsewhere = {each.address for each in known.values() if self._is_elsewhere(each)}
            for told in await asyncio.gather(*(self._told_at(a, workspace) for a in elsewhere)):
                known |= {each.daemon_id: each for each in told if each.daemon_id in known}
            for name, record in (await self._admission.gate.told(workspace)).items():
                if name in known:
                    _mark(known[name], record)
            for info in known.values():
                self._tell(info)
        return pb.ListDaemonsResponse(daemons=list(known.values()), providers=self._providers)

    async def GetDaemon(
        self, request: pb.GetDaemonRequest, context: Context
    ) -> pb.GetDaemonResponse:
        """One of the workspace's daemons, asked now."""
        who = caller(context)
        workspace = _workspace(request.workspace, who)
        info = self._fleet.daemon(request.daemon_id, workspace)
        if who.role is Role.BRAIN or not self._is_elsewhere(info):
            found = await self._state_here(info, workspace)
        else:
            found = await self._state_at(info, workspace)
        if who.role is not Role.BRAIN:
            record = (await self._admission.gate.told(workspace)).get(info.daemon_id)
            if record is not None:
                _mark(found.daemon, record)
        self._tell(found.daemon)
        return found

    async def _state_here(self, info: pb.DaemonInfo, workspace: str) -> pb.GetDaemonResponse:
        if self._fleet.has(info.daemon_id):
            connection = await self._fleet.connection(info.daemon_id, workspace)
            return await states.ask(info, connection)
        why = "it is not linked" if info.state == "gone" else "its link is at another brain"
        return pb.GetDaemonResponse(daemon=info, types=states.named(info.types), unanswered=why)

    async def _state_at(self, info: pb.DaemonInfo, workspace: str) -> pb.GetDaemonResponse:
        stub = await self._peers.orchestrator(info.address)
        request = pb.GetDaemonRequest(daemon_id=info.daemon_id, workspace=workspace)
        try:
            with rpc_errors(f"the brain at {info.address}"):
                answer: pb.GetDaemonResponse = await stub.GetDaemon(
                    request, timeout=states.ANSWER_LIMIT + _HOP_LIMIT
                )
        except CarpalError as error:
            types = states.named(info.types)
            return pb.GetDaemonResponse(daemon=info, types=types, unanswered=error.message)
        return answer

    def _tell(self, info: pb.DaemonInfo) -> None:
        """Add to a daemon what this brain alone knows of it."""
        mine = self._refused.of(info.workspace, info.daemon_id)
        rows = [*(row for row in info.refused if row.brain != self._me), *mine]
        del info.refused[:]
        info.refused.extend(sorted(rows, key=lambda row: -row.time.ToNanoseconds())[:LINKS_MAX])
        issued = info.certificate_begins.seconds + BACKDATE.total_seconds()
        info.revoked = self._revocations.word(info.identity, issued)

    async def QuarantineDaemon(
        self, request: pb.QuarantineDaemonRequest, context: Context
    ) -> pb.QuarantineDaemonResponse:
        """Let no machine of a name link, or let it again, at every brain."""
        who = caller(context)
        info = self._fleet.daemon(request.daemon_id, who.workspace)
        state = "lifted" if request.lift else "quarantined"
        record = Record(state, given(request.reason), who.uri)
        await self._admission.gate.decide(info.daemon_id, who.workspace, record)
        log.warning(state, extra={"daemon": info.daemon_id, "by": who.uri, "why": record.reason})
        if not request.lift:
            await self._fleet.links.cut(
                info, refused(info.daemon_id, record.reason or "by an operator")
            )
        _mark(info, record)
        return pb.QuarantineDaemonResponse(daemon=info)

    async def DrainDaemon(
        self, request: pb.DrainDaemonRequest, context: Context
    ) -> pb.DrainDaemonResponse:
        """Tell a daemon to take no new hands, or to take them again."""
        who = caller(context)
        workspace = _workspace(request.workspace, who)
        info = self._fleet.daemon(request.daemon_id, workspace)
        if who.role is not Role.BRAIN and self._is_elsewhere(info):
            stub = await self._peers.orchestrator(info.address)
            request.workspace = workspace
            with rpc_errors(f"the brain at {info.address}"):
                answer: pb.DrainDaemonResponse = await stub.DrainDaemon(request, timeout=_HOP_LIMIT)
                return answer
        return pb.DrainDaemonResponse(daemon=await self._fleet.drain_hands(info, request))

    def _is_elsewhere(self, info: pb.DaemonInfo) -> bool:
        return info.state != "gone" and not self._fleet.has(info.daemon_id)

    async def _told_at(self, address: str, workspace: str) -> list[pb.DaemonInfo]:
        """The daemons linked at another brain; none when it does not answer."""
        stub = await self._peers.orchestrator(address)
        request = pb.ListDaemonsRequest(workspace=workspace)
        try:
            with rpc_errors(f"the brain at {address}"):
                told = (await stub.ListDaemons(request, timeout=_HOP_LIMIT)).daemons
        except CarpalError as error:
            log.info("a brain's daemons are told from here", extra={"why": str(error)})
            return []
        return [each for each in told if each.address == address]

    async def ListHands(
        self, request: pb.OrchestratorListHandsRequest, context: Context
    ) -> pb.OrchestratorListHandsResponse:
        """The hands of the workspace's linked daemons; names those that do not answer."""
        workspace = _workspace(request.workspace, caller(context))
        names = [d.daemon_id for d in self._fleet.daemons(workspace) if d.state != "gone"]
        asking = (self._hands(n, workspace, request.session_id) for n in names)
        answers = await asyncio.gather(*asking)
        found = pb.OrchestratorListHandsResponse()
        for name, answer in zip(names, answers, strict=True):
            if answer is None:
                found.missing.append(name)
                continue
            for hand in answer.hands:
                hand.daemon_id = name
                found.hands.append(hand)
        return found

    async def _hands(
        self, name: str, workspace: str, session_id: str
    ) -> hand_pb2.ListHandsResponse | None:
        try:
            async with asyncio.timeout(_INVENTORY_LIMIT):
                connection = await self._fleet.connection(name, workspace)
                answer: hand_pb2.ListHandsResponse = await one(
                    connection.call("list_hands", hand_pb2.ListHandsRequest(session_id=session_id))
                )
                return answer
        except (TimeoutError, CarpalError):
            return None

    async def _session(self, session_id: str, who: Identity) -> types_pb2.SessionInfo:
        """The session, or SESSION_NOT_FOUND also when it is another workspace's."""
        with rpc_errors("sessiond"):
            answer = await self._sessions.GetSession(
                session_pb2.GetSessionRequest(session_id=session_id), timeout=_STORE_LIMIT
            )
        if who.role is not Role.BRAIN and answer.session.workspace != who.workspace:
            raise refuse(Reason.SESSION_NOT_FOUND, f"no session {session_id!r}")
        return answer.session


def _mark(info: pb.DaemonInfo, record: Record) -> None:
    """Say of a daemon that it is in quarantine."""
    info.quarantine = record.told
    if record.state == "quarantined":
        info.state = "quarantined"


def _workspace(asked: str, who: Identity) -> str:
    if who.role is Role.BRAIN:
        if not asked:
            raise invalid("workspace", "a brain must name it")
        return asked
    if asked not in ("", who.workspace):
        raise refuse(
            Reason.ROLE_NOT_ALLOWED,
            f"an operator of workspace {who.workspace!r} cannot see {asked!r}",
        )
    return who.workspace
