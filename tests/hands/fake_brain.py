"""A brain's end of the link and nothing else: it admits daemons and asks what tests ask."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from brain.daemons import attach
from brain.daemons.daemon_link import DaemonLink
from brain.daemons.introduction import Introduction
from carpal.errors import refuse
from carpal.identity import Identity, Role
from carpal.link_terms import ATTACH
from carpal.revocations import Revocations
from carpal.server import Context, caller, not_built, serve
from carpal.signed import sign
from carpal.status import Reason
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import hand_pb2, orchestrator_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.hands.place import PATIENCE
from tests.pace import SCALE
from tests.pki import Pki

HEARTBEAT = 0.2 * SCALE


class FakeBrain(orchestrator_pb2_grpc.OrchestratorServicer):
    """Serves Connect over mutual TLS."""

    Wake = Watch = ListDaemons = ListHands = not_built
    DrainDaemon = GetDaemon = Enter = QuarantineDaemon = ReadBlob = WriteBlob = not_built

    def __init__(self, name: str) -> None:
        self.name = name
        self.files = IdentityFiles(Path())
        """Its identity."""
        self.store = IdentityFiles(Path())
        """That of the sessiond that granted it leases."""
        self.revocations = Revocations()
        self.address = ""
        self.lease_left = 10.0 * SCALE
        self.epoch = 0
        self.brains: list[str] = []
        self.admits = True
        self.supersedes: DaemonLink | None = None
        """Ended before the next welcome, as a brain does with an older link."""
        self.links: asyncio.Queue[DaemonLink] = asyncio.Queue()
        self.beats: list[float] = []
        """When heartbeats came, on the monotonic clock."""
        self.newest: DaemonLink | None = None
        self.capabilities = [ATTACH]
        self.attached: list[pb.AttachOpen] = []
        """What Attach streams said first."""
        self._carrying: set[asyncio.Task[Any]] = set()
        self.ended: set[str] = set()
        """Daemons of which a link ended."""

    async def Connect(  # type: ignore[override] # it writes by context
        self, request_iterator: AsyncIterator[pb.ConnectRequest], context: Context
    ) -> None:
        link = DaemonLink(caller(context), lambda: self.lease_left)
        try:
            await link.serve(self._listen(request_iterator), context, self._admit)
        finally:
            self.ended.add(link.daemon_id)

    async def _listen(
        self, frames: AsyncIterator[pb.ConnectRequest]
    ) -> AsyncIterator[pb.ConnectRequest]:
        async for frame in frames:
            if any(message.HasField("heartbeat") for message in frame.messages):
                self.beats.append(time.monotonic())
            yield frame

    async def Attach(  # type: ignore[override] # it writes by context
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: Context
    ) -> None:
        opening = await attach.opening(request_iterator)
        self.attached.append(opening)
        assert self.newest is not None
        task = asyncio.create_task(self.newest.attach(opening, request_iterator, context))
        self._carrying.add(task)
        try:
            await asyncio.wait({task})
            if task.cancelled():
                raise refuse(Reason.UNAVAILABLE, "this stream broke")
            task.result()
        finally:
            self._carrying.discard(task)
            task.cancel()

    @property
    def serving(self) -> int:
        """Attach streams that are open."""
        return len(self._carrying)

    def break_attached(self) -> int:
        """Break every Attach stream, and not the link; how many there were."""
        for task in self._carrying:
            task.cancel()
        return len(self._carrying)

    async def _admit(self, link: DaemonLink, hello: pb.Hello, protocol: int) -> pb.Welcome:
        if not self.admits:
            raise refuse(Reason.UNAVAILABLE, "this brain stops")
        if older := self.supersedes:
            self.supersedes = None
            older.end(refuse(Reason.LINK_SUPERSEDED, "a newer link came"))
            while link.daemon_id not in self.ended:  # noqa: ASYNC110 - the daemon has heard of it
                await asyncio.sleep(0)
        self.epoch += 1
        welcome = pb.Welcome(
            protocol=protocol,
            epoch=self.epoch,
            brain=self.name,
            brains=self.brains,
            capabilities=self.capabilities,
        )
        welcome.heartbeat_interval.FromMilliseconds(int(HEARTBEAT * 1000))
        welcome.silence_limit.FromMilliseconds(int(HEARTBEAT * 10_000))
        self.introduce(link.identity, hello, welcome)
        self.newest = link
        self.links.put_nowait(link)
        return welcome

    def introduce(self, daemon: Identity, hello: pb.Hello, welcome: pb.Welcome) -> None:
        """Say in a welcome which brain this is."""
        Introduction(self.files, self.revocations).to(daemon, hello, welcome)
        granted = types_pb2.LeaseTicket(
            resource=f"daemon/{daemon.name}",
            epoch=welcome.epoch,
            holder=self.files.identity().uri,
            workspace=daemon.workspace,
        )
        welcome.ticket.CopyFrom(ticket(self.store, granted))

    async def link(self) -> "Asked":
        """The next link that comes, open."""
        async with asyncio.timeout(PATIENCE):
            link = await self.links.get()
            while not link.open:  # noqa: ASYNC110 - the welcome goes right after
                await asyncio.sleep(0)
        return Asked(link)


class Asked:
    """Short ways to ask over a link."""

    def __init__(self, link: DaemonLink) -> None:
        self.link = link
        self.driver = hand_pb2.Driver(session_id="s", epoch=1, workspace="default")

    async def replies(self, request: pb.Request) -> AsyncIterator[pb.Reply]:
        """All replies; raises the daemon's refusal."""
        async for reply in self.link.call(request):
            yield reply

    async def ask(self, **call: Any) -> pb.Reply:
        """The last reply to a request."""
        async with asyncio.timeout(PATIENCE):
            async for reply in self.replies(pb.Request(**call)):
                last = reply
        return last

    async def provision(self, hand_id: str, deadline: float = 60.0) -> hand_pb2.ProvisionResult:
        """A process hand."""
        request = hand_pb2.ProvisionRequest(driver=self.driver, hand_id=hand_id, type="process")
        request.orphan_deadline.FromMilliseconds(int(deadline * 1000))
        return (await self.ask(provision=request)).provision.result

    def execute(self, hand_id: str, call_id: str, command: str) -> AsyncIterator[pb.Reply]:
        """A bash call's replies."""
        return self.replies(pb.Request(execute=self.call(hand_id, call_id, command)))

    def call(self, hand_id: str, call_id: str, command: str) -> hand_pb2.ExecuteRequest:
        """A bash call."""
        return hand_pb2.ExecuteRequest(
            driver=self.driver, hand_id=hand_id, call_id=call_id, name="bash", input=_json(command)
        )


def ticket(store: IdentityFiles, granted: types_pb2.LeaseTicket) -> types_pb2.SignedBytes:
    """One that a sessiond signed."""
    own = store.load()
    return sign(own.key, own.chain, granted.SerializeToString())


def _json(command: str) -> bytes:
    return json.dumps({"command": command}).encode()


@asynccontextmanager
async def brain(
    pki: Pki, name: str, listen: str = "127.0.0.1:0", *, kind: type[FakeBrain] = FakeBrain
) -> AsyncIterator[FakeBrain]:
    """A brain that serves."""
    store = pki.issue(Role.SESSIOND, f"of-{name}")
    async with serving(pki.issue(Role.BRAIN, name), store, listen, kind=kind) as fake:
        yield fake


@asynccontextmanager
async def serving(
    files: IdentityFiles,
    store: IdentityFiles,
    listen: str = "127.0.0.1:0",
    *,
    kind: type[FakeBrain] = FakeBrain,
) -> AsyncIterator[FakeBrain]:
    """The same, under an identity that there is, of a sessiond's."""
    fake = kind(files.identity().name)
    fake.files, fake.store = files, store

    def register(server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(fake, server)

    credentials = server_credentials(files)
    async with serve(listen, credentials, register, revocations=fake.revocations) as server:
        fake.address = server.address
        fake.brains = [server.address]
        yield fake


async def next_reply(replies: AsyncIterator[pb.Reply]) -> pb.Reply:
    """One more, in good time."""
    async with asyncio.timeout(PATIENCE):
        return await anext(replies)
