"""One store and the sessiond processes that serve it: started, killed, stopped and continued."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from carpal.backoff import Backoff
from carpal.client import dial, from_rpc
from carpal.errors import Unreachable
from carpal.identity import Role
from carpal.tls import IdentityFiles
from carpal.v1.session_pb2_grpc import SessionStub
from tests.pace import SCALE
from tests.pki import Pki
from tests.world import Running, World

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

T = TypeVar("T")
SECONDS = 60.0 * SCALE
"""How long anything may take that only has to happen."""
BRAINS = ("brain-1", "brain-2")


@dataclass
class Service:
    """The processes `s1`, `s2`, …; each has its own state folder, and they share the store."""

    world: World
    url: str
    """Of a PostgreSQL database; empty for SQLite, which one process serves."""
    names: tuple[str, ...]

    async def start(self, name: str = "s1") -> Running:
        """Start a process; again, where it was before. It serves when this returns."""
        before = self.world.running[name].facts if name in self.world.running else {}
        listen = before.get("address", "127.0.0.1:0")
        state = self.world.state / name
        arguments = ("sessiond", "run", "--state-dir", str(state), "--listen", listen)
        running = await self.world.start(name, *arguments)
        in_file = (state / "sessiond" / "sessions.db").exists()
        assert in_file is not bool(self.url), "it serves another store than it was told to"
        return running

    async def start_all(self) -> None:
        """Start every process."""
        for name in self.names:
            await self.start(name)

    async def kill(self, name: str = "s1") -> None:
        """SIGKILL."""
        await self.world.running[name].kill(signal.SIGKILL)

    def signal(self, number: signal.Signals, name: str = "s1") -> None:
        """Send a signal, which need not end it."""
        os.kill(self.pid(name), number)

    def pid(self, name: str = "s1") -> int:
        """Its process id."""
        return self.world.running[name].pid

    def address(self, name: str = "s1") -> str:
        """Where it serves."""
        return str(self.world.running[name].facts["address"])

    def resident_kb(self, name: str = "s1") -> int:
        """The memory it holds, in KiB."""
        pages = int(Path(f"/proc/{self.pid(name)}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024

    def identity(self, brain: str) -> IdentityFiles:
        """A brain's."""
        return IdentityFiles(self.world.state / brain / "identity")

    @asynccontextmanager
    async def brain(
        self, brain: str = "brain-1", name: str = "s1"
    ) -> AsyncIterator["SessionAsyncStub"]:
        """A brain's own channel to a process."""
        files = self.identity(brain)
        async with dial(self.address(name), Role.SESSIOND, files) as channel:
            yield SessionStub(channel)

    async def persist(
        self,
        body: Callable[["SessionAsyncStub"], Awaitable[T]],
        brain: str = "brain-1",
        first: int = 0,
    ) -> T:
        """What `body` answers, asked of one process after the other until one does.

        As a client does it that outlives them: it waits, dials anew and asks again.
        """
        backoff, turn = Backoff(0.02, 0.5), first
        while True:
            name = self.names[turn % len(self.names)]
            try:
                async with self.brain(brain, name) as stub:
                    return await body(stub)
            except grpc.aio.AioRpcError as error:
                failure = from_rpc(error, name)
                if not isinstance(failure, Unreachable):
                    raise failure from error
            turn += 1
            await asyncio.sleep(backoff.next())


@asynccontextmanager
async def service(
    folder: Path, url: str = "", *, processes: int = 1, environ: dict[str, str] | None = None
) -> AsyncIterator[Service]:
    """Processes on one store, none of which runs yet; all are killed at the end."""
    pki, state = Pki(folder / "pki"), folder / "state"
    names = tuple(f"s{number + 1}" for number in range(processes))
    for name in names:
        pki.issue(Role.SESSIOND, name, directory=state / name / "sessiond" / "identity")
    for brain in BRAINS:
        pki.issue(Role.BRAIN, brain, directory=state / brain / "identity")
    store = {"CARPAL_STORE": url} if url else {}
    world = World(state, term=10.0, environ={**store, **(environ or {})})
    try:
        yield Service(world, url, names)
    finally:
        await world.end()
