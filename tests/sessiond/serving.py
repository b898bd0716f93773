"""A real sessiond in this process: real store, real server, real certificates, a fake clock."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from carpal.client import dial
from carpal.identity import Role
from carpal.server import serve
from carpal.tls import server_credentials
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub, add_SessionServicer_to_server
from sessiond.parts import Parts, running
from sessiond.rules.blobs import BLOB_CAP
from sessiond.service.sessions import SessionService
from sessiond.sqlite.store import SqliteStore
from sessiond.store import Store
from sessiond.tickets import Tickets
from tests.pace import SCALE
from tests.pki import Pki
from tests.sessiond.clocks import FakeClock

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

WAIT = 10.0 * SCALE
"""Seconds that any wait of these tests may take before it counts as a hang."""


@dataclass
class Serving:
    """The server and its callers."""

    pki: Pki
    clock: FakeClock
    parts: Parts
    service: SessionService
    address: str
    _stack: AsyncExitStack
    _stubs: dict[tuple[Role, str], "SessionAsyncStub"] = field(default_factory=dict)

    async def stub(self, role: Role, name: str, workspace: str = "") -> "SessionAsyncStub":
        """Calls as someone, over a connection of their own."""
        if (role, name) not in self._stubs:
            files = self.pki.issue(role, name, workspace)
            channel = await self._stack.enter_async_context(
                dial(self.address, Role.SESSIOND, files)
            )
            self._stubs[role, name] = SessionStub(channel)
        return self._stubs[role, name]

    async def brain(self, name: str = "brain-1") -> "SessionAsyncStub":
        """Calls as a brain."""
        return await self.stub(Role.BRAIN, name)

    async def operator(self, name: str = "ada", workspace: str = "default") -> "SessionAsyncStub":
        """Calls as an operator of a workspace."""
        return await self.stub(Role.OPERATOR, name, workspace)

    async def advance(self, seconds: float) -> None:
        """Time passes, and what is due by then has happened when this returns."""
        self.clock.advance(seconds)
        await self.parts.deadlines.act()
        await self.parts.sweeper.act()

    async def lease(
        self,
        session_id: str,
        brain: str = "brain-1",
        term: float = 10.0,
        events_after: int | None = None,
    ) -> pb.AcquireLeaseResponse:
        """Acquire a session's lease as a brain."""
        request = pb.AcquireLeaseRequest(
            resource=f"session/{session_id}", address=f"{brain}:1", events_after=events_after
        )
        request.term.FromMilliseconds(int(term * 1000))
        return await (await self.brain(brain)).AcquireLease(request)


@asynccontextmanager
async def serving(
    at: Path | Callable[[FakeClock], Store],
    pki: Pki,
    clock: FakeClock,
    *,
    blob_cap: int = BLOB_CAP,
) -> AsyncIterator[Serving]:
    """Serve a store, or an SQLite one in a folder, until the block ends."""
    store = SqliteStore(at / "sessions.db", clock) if isinstance(at, Path) else at(clock)
    files = pki.issue(Role.SESSIOND, "sessiond")
    loaded = files.load()
    async with (
        AsyncExitStack() as stack,
        running(store, loaded.identity.uri, blob_cap=blob_cap) as parts,
    ):
        service = SessionService(parts, Tickets(files))
        async with (
            serve(
                "127.0.0.1:0",
                server_credentials(files),
                lambda server: add_SessionServicer_to_server(service, server),
            ) as server,
        ):
            timer = asyncio.create_task(parts.deadlines.run())
            sweeper = asyncio.create_task(parts.sweeper.run())
            try:
                yield Serving(pki, clock, parts, service, server.address, stack)
            finally:
                service.close_streams()
                timer.cancel()
                sweeper.cancel()


def event(id: str, type: str = "user.message", data: bytes = b"{}") -> types_pb2.NewEvent:
    """An event to append."""
    return types_pb2.NewEvent(id=id, type=type, data=data)
