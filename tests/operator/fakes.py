"""A small sessiond, brain and vault to script, on real servers with real certificates."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from carpal.errors import refuse
from carpal.identity import Role
from carpal.operator.connection import Found
from carpal.server import Server, serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import (
    orchestrator_pb2,
    orchestrator_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
    vault_pb2,
    vault_pb2_grpc,
)
from tests.operator.log import BRAIN, OPERATOR, Log
from tests.pki import Pki

SECONDS = 10.0
"""How long any wait in these tests may take."""


class FakeSessiond(session_pb2_grpc.SessionServicer):
    """Logs and leases in memory; the test appends as the brain would."""

    def __init__(self) -> None:
        self.sessions: dict[str, session_pb2.CreateSessionRequest] = {}
        self.logs: dict[str, Log] = defaultdict(Log)
        self.leases: dict[str, types_pb2.LeaseInfo] = {}
        self.processed: dict[str, int] = {}
        self.wakes: dict[str, int] = {}
        self.tails: list[int] = []
        """Position from which each tail started."""
        self.tailed = asyncio.Event()
        self._changed = asyncio.Condition()
        self._leases_changed = asyncio.Event()

    async def append(
        self, session_id: str, kind: str, data: dict[str, Any] | None = None, **how: Any
    ) -> types_pb2.Event:
        """Append to a log, as a brain by default."""
        async with self._changed:
            event = self.logs[session_id].add(kind, data, **how)
            self._changed.notify_all()
        return event

    async def appended(self, kind: str) -> tuple[str, types_pb2.Event]:
        """Wait for an event of a type in any session."""
        async with asyncio.timeout(SECONDS), self._changed:
            while True:
                for session_id, log in self.logs.items():
                    for event in log.events:
                        if event.type == kind:
                            return session_id, event
                await self._changed.wait()

    async def changed(self) -> None:
        """Wait for the next event of any session."""
        async with self._changed:
            await self._changed.wait()

    def lease(self, resource: str, address: str, epoch: int = 1, **attributes: str) -> None:
        """Somebody takes a lease."""
        lease = types_pb2.LeaseInfo(
            resource=resource,
            epoch=epoch,
            holder=BRAIN,
            address=address,
            attributes=attributes,
        )
        lease.expires_in.FromSeconds(10)
        self.leases[resource] = lease
        self._tell_leases()

    def expire(self, resource: str) -> None:
        """A lease runs out."""
        self.leases[resource].ClearField("expires_in")
        self._tell_leases()

    def release(self, session_id: str) -> None:
        """The driver says that all is processed, and gives the lease up."""
        self.processed[session_id] = len(self.logs[session_id].events)
        self.leases.pop(f"session/{session_id}", None)
        self._tell_leases()

    def _tell_leases(self) -> None:
        self._leases_changed.set()
        self._leases_changed = asyncio.Event()

    def _info(self, session_id: str) -> types_pb2.SessionInfo:
        if session_id not in self.logs:
            raise refuse(Reason.SESSION_NOT_FOUND, f"no session {session_id!r}")
        info = types_pb2.SessionInfo(session_id=session_id, workspace="default")
        info.processed = self.processed.get(session_id, 0)
        info.wake = self.wakes.get(session_id, 0)
        if session_id in self.sessions:
            info.title = self.sessions[session_id].title
        info.created.FromSeconds(1_800_000_000)
        info.head.position = len(self.logs[session_id].events)
        if lease := self.leases.get(f"session/{session_id}"):
            info.lease.CopyFrom(lease)
        return info

    async def CreateSession(self, request: Any, context: Any) -> Any:
        self.sessions[request.session_id] = request
        async with self._changed:
            for event in request.events:
                made = self.logs[request.session_id].add(
                    event.type, source=OPERATOR, event_id=event.id
                )
                made.data = event.data
            self._changed.notify_all()
        return session_pb2.CreateSessionResponse(session=self._info(request.session_id))

    async def GetSession(self, request: Any, context: Any) -> Any:
        return session_pb2.GetSessionResponse(session=self._info(request.session_id))

    async def ListSessions(self, request: Any, context: Any) -> Any:
        names = sorted(self.logs)
        start = int(request.page_token or 0)
        # Pages of one, so that whoever lists must turn them.
        page = session_pb2.ListSessionsResponse(
            sessions=[self._info(name) for name in names[start : start + 1]]
        )
        if start + 1 < len(names):
            page.next_page_token = str(start + 1)
        return page

    async def EmitEvent(self, request: Any, context: Any) -> Any:
        self._info(request.session_id)
        assert request.wake
        assert not request.HasField("epoch")
        event = await self.append(
            request.session_id, request.event.type, source=OPERATOR, event_id=request.event.id
        )
        event.data = request.event.data
        return session_pb2.EmitEventResponse(event=event)

    async def GetEvents(self, request: Any, context: Any) -> Any:
        self._info(request.session_id)
        wanted = [
            event
            for event in self.logs[request.session_id].events
            if request.after < event.position < (request.before or 1 << 62)
            and any(event.type.startswith(kind.removesuffix("*")) for kind in request.types or [""])
        ]
        if request.order == types_pb2.EVENT_ORDER_NEWEST_FIRST:
            wanted.reverse()
        return session_pb2.GetEventsResponse(events=wanted[:2], more=len(wanted) > 2)

    async def TailEvents(self, request: Any, context: Any) -> AsyncIterator[Any]:
        (cursor,) = request.cursors
        self._info(cursor.session_id)
        self.tails.append(cursor.after)
        self.tailed.set()
        sent, live = cursor.after, False
        while True:
            async with self._changed:
                while live and len(self.logs[cursor.session_id].events) <= sent:
                    await self._changed.wait()
                events = list(self.logs[cursor.session_id].events[sent:])
            sent, live = sent + len(events), True
            yield session_pb2.TailEventsResponse(
                session_id=cursor.session_id, events=events, live=True, head=sent
            )

    async def WatchLeases(self, request: Any, context: Any) -> AsyncIterator[Any]:
        while True:
            changed = self._leases_changed
            yield session_pb2.WatchLeasesResponse(
                snapshot=True,
                leases=[
                    lease for name, lease in self.leases.items() if name.startswith(request.prefix)
                ],
            )
            # Later answers are snapshots too: here a lease that is given up has no row.
            await changed.wait()


class FakeBrain(orchestrator_pb2_grpc.OrchestratorServicer):
    """Sends watchers what the test says; knows the daemons it is given."""

    def __init__(self) -> None:
        self.daemons: list[orchestrator_pb2.DaemonInfo] = []
        self.shown: dict[str, orchestrator_pb2.GetDaemonResponse] = {}
        self.drained: list[orchestrator_pb2.DrainDaemonRequest] = []
        self.watchers: list[asyncio.Queue[orchestrator_pb2.WatchResponse]] = []
        self._joined = asyncio.Condition()

    async def watched(self, times: int = 1) -> None:
        """Wait until somebody watches here."""
        async with asyncio.timeout(SECONDS), self._joined:
            await self._joined.wait_for(lambda: len(self.watchers) >= times)

    def output(self, call_id: str, offset: int, data: bytes) -> None:
        """A running tool writes."""
        moment = orchestrator_pb2.WatchResponse()
        moment.output.call_id = call_id
        moment.output.chunk.offset = offset
        moment.output.chunk.data = data
        for watcher in self.watchers:
            watcher.put_nowait(moment)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        moments: asyncio.Queue[orchestrator_pb2.WatchResponse] = asyncio.Queue()
        async with self._joined:
            self.watchers.append(moments)
            self._joined.notify_all()
        while True:
            yield await moments.get()

    async def ListDaemons(self, request: Any, context: Any) -> Any:
        return orchestrator_pb2.ListDaemonsResponse(daemons=self.daemons)

    async def GetDaemon(self, request: Any, context: Any) -> Any:
        if request.daemon_id not in self.shown:
            raise refuse(Reason.DAEMON_NOT_FOUND, f"no daemon {request.daemon_id!r}")
        return self.shown[request.daemon_id]

    async def DrainDaemon(self, request: Any, context: Any) -> Any:
        self.drained.append(request)
        state = "connected" if request.lift else "draining"
        daemon = orchestrator_pb2.DaemonInfo(daemon_id=request.daemon_id, state=state)
        return orchestrator_pb2.DrainDaemonResponse(daemon=daemon)


def new_brain() -> FakeBrain:
    """A brain that nobody watches yet."""
    return FakeBrain()  # type: ignore[abstract]  # the rest answers UNIMPLEMENTED


class FakeVault(vault_pb2_grpc.VaultServicer):
    """Keeps the tokens it is asked to make."""

    def __init__(self) -> None:
        self.tokens: list[vault_pb2.CreateTokenRequest] = []
        self.revoked: list[vault_pb2.RevokeIdentityRequest] = []
        self.used: list[str] = []
        """Names of daemons that enrolled."""

    async def ListTokens(self, request: Any, context: Any) -> Any:
        tokens = [vault_pb2.TokenInfo(name=name, used=Timestamp(seconds=1)) for name in self.used]
        return vault_pb2.ListTokensResponse(tokens=tokens)

    async def RevokeIdentity(self, request: Any, context: Any) -> Any:
        self.revoked.append(request)
        return vault_pb2.RevokeIdentityResponse()

    async def CreateToken(self, request: Any, context: Any) -> Any:
        self.tokens.append(request)
        return vault_pb2.CreateTokenResponse(ca_pins=[bytes(32)])


class House:
    """One trust domain's servers, and where an operator finds them."""

    def __init__(self, tmp_path: Path) -> None:
        self.pki = Pki(tmp_path)
        self.state = tmp_path / "state"
        self.operator: IdentityFiles = self.pki.issue(
            Role.OPERATOR, "ann", directory=self.state / "operator" / "identity"
        )
        self.sessiond = FakeSessiond()  # type: ignore[abstract]  # answers what is asked here
        self.brain = new_brain()
        self.vault = FakeVault()  # type: ignore[abstract]
        self.address = ""

    @asynccontextmanager
    async def serve_sessiond(self, listen: str = "127.0.0.1:0") -> AsyncIterator[Server]:
        """Serve sessiond; again at `house.address` is a restart."""
        files = self.pki.issue(Role.SESSIOND, "sessiond")

        def register(server: Any) -> None:
            session_pb2_grpc.add_SessionServicer_to_server(self.sessiond, server)

        async with serve(listen, server_credentials(files), register) as server:
            self.address = server.address
            self.write_config()
            yield server

    @asynccontextmanager
    async def serve_brain(
        self, name: str = "brain-1", brain: FakeBrain | None = None
    ) -> AsyncIterator[Server]:
        """Serve a brain, without a lease."""
        files = self.pki.issue(Role.BRAIN, name)

        def register(server: Any) -> None:
            orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(brain or self.brain, server)

        async with serve("127.0.0.1:0", server_credentials(files), register) as server:
            yield server

    @asynccontextmanager
    async def serve_vault(self) -> AsyncIterator[Server]:
        """Serve the vault."""
        files = self.pki.issue(Role.VAULT, "vault")

        def register(server: Any) -> None:
            vault_pb2_grpc.add_VaultServicer_to_server(self.vault, server)

        async with serve("127.0.0.1:0", server_credentials(files), register) as server:
            self.write_config(vault=server.address)
            yield server

    def write_config(self, vault: str = "") -> None:
        """`operator.toml`, as `carpal dev` writes it."""
        config = f'sessiond = "{self.address}"\n' + (f'vault = "{vault}"\n' if vault else "")
        (self.state / "operator" / "operator.toml").write_text(config)

    @property
    def found(self) -> Found:
        """What an operator's command would find."""
        return Found(self.operator, self.address, "")
