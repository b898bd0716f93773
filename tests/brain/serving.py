"""A brain's port in this process, before a real sessiond, and daemons that a test scripts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from brain.daemons.admission import Admission
from brain.daemons.diary import Diary
from brain.daemons.directory import Directory
from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import Peers
from brain.daemons.introduction import Introduction
from brain.daemons.links import Links
from brain.daemons.people import People
from brain.daemons.planned import PlannedEnds
from brain.daemons.relay import HandRelay
from brain.orchestrator import OrchestratorService
from brain.session.leases import LeaseKeeper
from brain.session.watch import WatchHub
from carpal.client import dial
from carpal.identity import Role
from carpal.revocations import Revocations
from carpal.server import serve
from carpal.tls import server_credentials
from carpal.v1 import hand_pb2, hand_pb2_grpc, orchestrator_pb2_grpc
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.stage import WAIT
from tests.sessiond.serving import Serving

LAST = 2**62
"""An epoch that no link has reached."""


class Brain:
    """One brain's fleet and what it serves."""

    def __init__(
        self, sessions: Serving, name: str, fleet: Fleet, keeper: LeaseKeeper, hub: WatchHub
    ) -> None:
        self.sessions = sessions
        self.name = name
        self.fleet = fleet
        self.keeper = keeper
        self.hub = hub
        self.address = ""

    @asynccontextmanager
    async def asked_by(
        self, role: Role, name: str, workspace: str = ""
    ) -> AsyncIterator[grpc.aio.Channel]:
        """A channel as someone."""
        files = self.sessions.pki.issue(role, name, workspace)
        async with dial(self.address, Role.BRAIN, files) as channel:
            yield channel

    async def sees(self, holds: Callable[[Fleet], bool]) -> None:
        """Until something is true of the fleet."""
        async with asyncio.timeout(WAIT):
            while not holds(self.fleet):
                await self.fleet.directory.wait_change(0.05)


@asynccontextmanager
async def brain(
    sessions: Serving,
    name: str = "brain-1",
    revocations: Revocations | None = None,
    planned: PlannedEnds | None = None,
) -> AsyncIterator[Brain]:
    """A brain that serves."""
    stub = await sessions.brain(name)
    files = sessions.pki.issue(Role.BRAIN, name)
    me = files.load().identity
    directory, keeper, hub = Directory(stub), LeaseKeeper(stub, 10.0), WatchHub()
    peers = Peers(files)
    links = Links(directory, keeper, me, planned or PlannedEnds(lambda: me))
    fleet = Fleet(directory, links, peers, me)
    diary = Diary(fleet, stub, me)
    people = People(stub, fleet, diary, peers)
    orchestrator = OrchestratorService(
        stub,
        fleet,
        Admission(fleet, me, Introduction(files, revocations or Revocations())),
        hub,
        peers,
        people=people,
        me=me,
        lease_left=lambda: 10.0,
    )

    def register(server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(orchestrator, server)
        hand_pb2_grpc.add_HandServicer_to_server(HandRelay(fleet, people), server)

    serving = serve(
        "127.0.0.1:0",
        server_credentials(files),
        register,
        drain=lambda: fleet.links.leave("it stops"),
        revocations=revocations,
    )
    async with serving as server:
        made = Brain(sessions, name, fleet, keeper, hub)
        made.address = keeper.address = server.address
        following = asyncio.create_task(directory.follow_daemons())
        writing = asyncio.create_task(diary.run())
        try:
            yield made
        finally:
            following.cancel()
            writing.cancel()
            await asyncio.wait({following, writing})
            await peers.close()


class Daemon:
    """A daemon's end of a link: what it is asked, and what it says."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.stub: Any = None
        """The brain, over the same connection."""
        self.asked: asyncio.Queue[pb.Request] = asyncio.Queue()
        self.abandoned: asyncio.Queue[int] = asyncio.Queue()
        self.welcome = pb.Welcome()
        self.goodbye = ""
        self.brains: asyncio.Queue[list[str]] = asyncio.Queue()
        self.drains: asyncio.Queue[pb.Drain] = asyncio.Queue()
        self.welcomed = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    async def say(self, **message: Any) -> None:
        """Send one message."""
        await self._stream.write(pb.ConnectRequest(messages=[pb.DaemonMessage(**message)]))

    async def reply(self, request: pb.Request, *, last: bool = True, **answer: Any) -> None:
        """Answer."""
        await self.say(reply=pb.Reply(request_id=request.request_id, last=last, **answer))

    async def next(self) -> pb.Request:
        """What it is asked next."""
        async with asyncio.timeout(WAIT):
            return await self.asked.get()

    async def _read(self) -> None:
        async for frame in self._stream:
            for message in frame.messages:
                kind = message.WhichOneof("kind")
                if kind == "welcome":
                    self.welcome = message.welcome
                    self.welcomed.set()
                elif kind == "request":
                    self.asked.put_nowait(message.request)
                elif kind == "abandon":
                    self.abandoned.put_nowait(message.abandon.request_id)
                elif kind == "brains":
                    self.brains.put_nowait(list(message.brains.addresses))
                elif kind == "drain":
                    self.drains.put_nowait(message.drain)
                elif kind == "goodbye":
                    self.goodbye = message.goodbye.reason

    async def ended(self) -> None:
        """Until the link is over; raises what the brain ended it with."""
        async with asyncio.timeout(WAIT):
            await asyncio.shield(self.reading)

    def cut(self) -> None:
        """The link is gone."""
        self._stream.cancel()


@asynccontextmanager
async def linked(
    to: Brain, name: str = "d1", workspace: str = "default", *, says: str = "", **hello: Any
) -> AsyncIterator[Daemon]:
    """A daemon that was welcomed; raises what the brain refused it with.

    It is the same instance each time, which obeyed the last link, unless `hello` says otherwise.
    """
    async with to.asked_by(Role.DAEMON, name, workspace) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        daemon = Daemon(stub.Connect())
        daemon.stub = stub
        said = {
            "daemon_id": says or name,
            "instance_id": "inst_1",
            "boot_id": "boot_1",
            "journal_id": "jrnl_1",
            "protocol_min": 1,
            "protocol_max": 1,
            "capacity": pb.Capacity(hands_max=4),
            "types": [hand_pb2.HandTypeInfo(type="process")],
            "last_epoch": LAST,
            **hello,
        }
        await daemon.say(hello=pb.Hello(**said))
        waiting = asyncio.create_task(daemon.welcomed.wait())
        try:
            async with asyncio.timeout(WAIT):
                both = {daemon.reading, waiting}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not daemon.welcomed.is_set():
                daemon.reading.result()
            yield daemon
        finally:
            daemon.cut()
            waiting.cancel()
            await asyncio.gather(daemon.reading, waiting, return_exceptions=True)
