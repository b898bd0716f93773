"""The brain's end of links, as a brain has it, in the process that measures; on a real sessiond."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import grpc

from bench.daemons import name
from bench.echo_peers import PAYLOAD
from bench.sessiond_process import sessiond
from brain.daemons.admission import Admission
from brain.daemons.diary import Diary
from brain.daemons.directory import Directory
from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import Peers
from brain.daemons.introduction import Introduction
from brain.daemons.links import Links
from brain.daemons.people import People
from brain.daemons.planned import PlannedEnds
from brain.orchestrator import OrchestratorService
from brain.session.leases import LeaseKeeper
from brain.session.watch import WatchHub
from carpal.client import dial
from carpal.identity import Role
from carpal.ids import new_id
from carpal.revocations import Revocations
from carpal.server import serve
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import (
    hand_pb2,
    orchestrator_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)
from tests.pki import Pki

_INPUT = b'{"text": "' + PAYLOAD.encode() + b'"}'
_TERM = 10.0
_DRIVER = hand_pb2.Driver(session_id="bench", epoch=1, workspace="default")


class LinkBrain:
    """Daemons link to it; it executes on their hands."""

    def __init__(
        self, fleet: Fleet, address: str, uri: str, sessions: "session_pb2_grpc.SessionAsyncStub"
    ) -> None:
        self.fleet = fleet
        self.address = address
        self._uri = uri
        self._sessions = sessions
        self._hands: dict[str, str] = {}
        self._unacknowledged: list[str] = []

    async def linked(self, count: int, seconds: float, first: int = 0) -> int:
        """How many of so many daemons are linked, once all are or after so long."""
        until = time.monotonic() + seconds
        wanted = [name(number) for number in range(first, first + count)]
        while time.monotonic() < until:
            if sum(map(self.fleet.has, wanted)) == count:
                break
            await asyncio.sleep(0.5)  # the fleet tells nobody of a link, and looking takes a while
        return sum(map(self.fleet.has, wanted))

    async def provision(self, daemon: str, kind: str = "echo", config: bytes = b"") -> None:
        """Give a daemon a hand to execute on, in the place of the one before."""
        request = hand_pb2.ProvisionRequest(
            driver=_DRIVER, hand_id=new_id("hand"), type=kind, config=config
        )
        async with aclosing(self._line(daemon).call("provision", request)) as answers:
            async for _ in answers:
                pass
        self._hands[daemon] = request.hand_id

    async def echo(self, daemon: str) -> None:
        """One call with 200 bytes there and back; RuntimeError when its result is another."""
        request = self._request(daemon, "echo", _INPUT)
        async with aclosing(self._line(daemon).call("execute", request)) as answers:
            async for answer in answers:
                if answer.HasField("result") and answer.result.content == PAYLOAD:
                    return
        raise RuntimeError("the echo was another")

    async def call(self, daemon: str, tool: str, given: bytes) -> hand_pb2.Result:
        """One call's result."""
        request = self._request(daemon, tool, given)
        self._unacknowledged.append(request.call_id)
        async with aclosing(self._line(daemon).call("execute", request)) as answers:
            async for answer in answers:
                if answer.HasField("result"):
                    result: hand_pb2.Result = answer.result
                    return result
        raise RuntimeError("the call ended without a result")

    async def begin_log(self) -> None:
        """The session whose log `append` adds to."""
        await self._sessions.CreateSession(
            session_pb2.CreateSessionRequest(session_id=_DRIVER.session_id, workspace="default")
        )

    async def append(self, result: hand_pb2.Result) -> None:
        """Put as much into the log as a brain puts there of a result."""
        data = json.dumps({"content": [{"type": "text", "text": result.content}]}).encode()
        event = types_pb2.NewEvent(id=new_id("sevt"), type="user.message", data=data)
        await self._sessions.EmitEvent(
            session_pb2.EmitEventRequest(session_id=_DRIVER.session_id, event=event)
        )

    async def acknowledge(self, daemon: str) -> None:
        """Say of all results so far that the log has them."""
        request = hand_pb2.AcknowledgeRequest(
            driver=_DRIVER, hand_id=self._hands[daemon], call_ids=self._unacknowledged
        )
        self._unacknowledged = []
        async with aclosing(self._line(daemon).call("acknowledge", request)) as answers:
            async for _ in answers:
                pass

    async def release(self, daemon: str) -> None:
        """End its hand."""
        request = hand_pb2.ReleaseRequest(driver=_DRIVER, hand_id=self._hands.pop(daemon))
        async with aclosing(self._line(daemon).call("release", request)) as answers:
            async for _ in answers:
                pass

    async def ask(self, daemon: str) -> None:
        """A question there and back that no journal is written for: the link alone."""
        request = hand_pb2.ProbeRequest(type="echo")
        async with aclosing(self._line(daemon).call("probe", request)) as answers:
            async for _ in answers:
                pass

    async def flood(self, daemon: str, size: int) -> tuple[int, int]:
        """One command of a process hand with so many bytes of output: what came, what was
        counted as left out."""
        given = b'{"command": "yes 0123456789abcdef | head -c %d"}' % size
        request = self._request(daemon, "bash", given)
        came = dropped = 0
        async with aclosing(self._line(daemon).call("execute", request)) as answers:
            async for answer in answers:
                if answer.HasField("output"):
                    came += len(answer.output.data)
                    dropped += answer.output.dropped_bytes
        return came, dropped

    def _line(self, daemon: str):  # type: ignore[no-untyped-def] # Linked, which brain keeps to itself
        return self.fleet.linked(daemon, self._uri)

    def _request(self, daemon: str, tool: str, given: bytes) -> hand_pb2.ExecuteRequest:
        return hand_pb2.ExecuteRequest(
            driver=_DRIVER,
            hand_id=self._hands[daemon],
            call_id=new_id("sevt"),
            name=tool,
            input=given,
        )


def identities(folder: Path) -> tuple[Pki, IdentityFiles]:
    """An authority, and the brain's identity; sessiond's is where it looks for it."""
    pki = Pki(folder / "pki")
    pki.issue(Role.SESSIOND, "sessiond", directory=folder / "state/sessiond/identity")
    files = pki.issue(Role.BRAIN, "brain-1", directory=folder / "state/brain/brain-1/identity")
    return pki, files


@asynccontextmanager
async def link_brain(folder: Path, files: IdentityFiles) -> AsyncIterator[LinkBrain]:
    """A brain that serves links, and nothing else."""
    me = files.identity()
    with sessiond(folder / "state") as store:
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(dial(store.address, Role.SESSIOND, files))
            sessions = session_pb2_grpc.SessionStub(channel)
            keeper = LeaseKeeper(sessions, _TERM)
            peers = Peers(files)
            stack.push_async_callback(peers.close)
            directory = Directory(sessions)
            planned = PlannedEnds(files.identity)
            fleet = Fleet(directory, Links(directory, keeper, me, planned), peers, me)
            service = OrchestratorService(
                sessions,
                fleet,
                Admission(fleet, me, Introduction(files, Revocations())),
                WatchHub(),
                peers,
                people=People(sessions, fleet, Diary(fleet, sessions, me), peers),
                me=me,
                lease_left=lambda: _TERM,
            )

            def register(server: grpc.aio.Server) -> None:
                orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(service, server)

            server = await stack.enter_async_context(
                serve("127.0.0.1:0", server_credentials(files), register)
            )
            keeper.address = server.address
            async with asyncio.TaskGroup() as group:
                working = [
                    group.create_task(keeper.run()),
                    group.create_task(directory.follow_daemons()),
                    group.create_task(directory.follow_brains(fleet.links.tell_brains)),
                ]
                yield LinkBrain(fleet, server.address, me.uri, sessions)
                fleet.links.end(None)
                for task in working:
                    task.cancel()
