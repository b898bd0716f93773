"""A disk that fills up: what needs room is refused, reads go on, and room heals it."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub
from tests.command import Command
from tests.pace import SCALE
from tests.pki import Pki
from tests.sessiond.desk import refused
from tests.sessiond.serving import event
from tests.world import Running, World

WAIT = 30.0 * SCALE
MEGABYTE = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)], check=False
    )
    if made.returncode != 0:
        pytest.skip("needs a kernel that lets this process mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
async def world(disk: Path, tmp_path: Path) -> AsyncIterator[World]:
    """A state folder on that disk, with the identities of sessiond and a brain."""
    pki = Pki(tmp_path / "pki")
    state = disk / "state"
    pki.issue("sessiond", "sessiond", directory=state / "sessiond" / "identity")
    pki.issue("brain", "brain-1", directory=state / "brain" / "brain-1" / "identity")
    world = World(state, term=10.0)
    yield world
    await world.end()


async def test_a_full_disk_refuses_writes_serves_reads_and_heals_without_a_restart(
    world: World, disk: Path
) -> None:
    async with asyncio.timeout(WAIT):
        running = await start(world)
        async with calls(world, running) as stub:
            log = Log(stub)
            await log.begin()
            for _ in range(3):
                fill(disk)
                await log.until_refused()
                # What is smaller than what was refused might still fit.
                first = event("large", data=bytes(500_000))
                request = pb.CreateSessionRequest(
                    session_id="sesn_new", workspace="default", events=[first]
                )
                with refused(Reason.STORE_FULL), rpc_errors("sessiond"):
                    await stub.CreateSession(request)
                assert await log.read() == log.acknowledged
                assert await log.renewed() in ("", Reason.STORE_FULL)
                room(disk)
                await log.append(20)
                assert await log.renewed() == ""
            assert running.process.returncode is None
            assert await log.read() == log.acknowledged


async def test_a_start_on_a_full_disk_serves_or_is_one_line_and_room_heals_that_too(
    world: World, disk: Path, tmp_path: Path
) -> None:
    async with asyncio.timeout(WAIT):
        running = await start(world)
        async with calls(world, running) as stub:
            log = Log(stub)
            await log.begin()
            fill(disk)
            await log.until_refused()
        await running.kill(signal.SIGKILL)
        (world.state / "sessiond" / "sessions.db-shm").unlink()
        fill(disk, but=0)
        arguments = ("--state-dir", str(world.state), "--listen", "127.0.0.1:0")
        ended = await Command(tmp_path)("sessiond", "run", *arguments)
        assert ended.code in (1, 2)
        said = [line for line in ended.stderr.splitlines() if line.startswith("carpal: ")]
        assert len(said) == 1
        assert "sessions.db" in said[0]
        assert "is full: free some space" in said[0]
        assert "Traceback" not in ended.stderr
        room(disk)
        running = await start(world)
        async with calls(world, running) as stub:
            log.stub = stub
            await log.begin()
            await log.append(5)
            assert await log.read() == log.acknowledged


class Log:
    """One session, and what of it was acknowledged."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        self.acknowledged: list[str] = []
        self._sent = 0
        self._epoch = 0

    async def begin(self) -> None:
        """Make the session, and drive it."""
        await self.stub.CreateSession(
            pb.CreateSessionRequest(session_id="sesn_1", workspace="default")
        )
        request = pb.AcquireLeaseRequest(resource="session/sesn_1")
        request.term.FromSeconds(60)
        self._epoch = (await self.stub.AcquireLease(request)).lease.epoch

    async def append(self, count: int) -> None:
        """So many events, one by one."""
        for _ in range(count):
            self._sent += 1
            new = event(f"e{self._sent}", "agent.message", b"x" * 5000)
            request = pb.EmitEventRequest(session_id="sesn_1", event=new, epoch=self._epoch)
            with rpc_errors("sessiond"):
                answer = await self.stub.EmitEvent(request)
            self.acknowledged.append(new.id)
            assert answer.event.position == len(self.acknowledged)

    async def until_refused(self) -> None:
        """Until there is no room; the refused event is not there."""
        with refused(Reason.STORE_FULL):
            await self.append(10_000)
        with refused(Reason.STORE_FULL):
            await self.append(1)

    async def renewed(self) -> str:
        """Why the lease was not renewed; empty when it was."""
        ref = types_pb2.LeaseRef(resource="session/sesn_1", epoch=self._epoch)
        try:
            with rpc_errors("sessiond"):
                await self.stub.RenewLease(pb.RenewLeaseRequest(leases=[ref]))
        except CarpalError as error:
            return error.reason
        return ""

    async def read(self) -> list[str]:
        """Ids of all that is in the log."""
        ids: list[str] = []
        more = True
        while more:
            request = pb.GetEventsRequest(session_id="sesn_1", after=len(ids), limit=1000)
            with rpc_errors("sessiond"):
                answer = await self.stub.GetEvents(request)
            assert [e.position for e in answer.events] == list(
                range(len(ids) + 1, len(ids) + 1 + len(answer.events))
            )
            ids += [e.id for e in answer.events]
            more = answer.more
        return ids


async def start(world: World) -> Running:
    state = str(world.state)
    return await world.start(
        "sessiond", "sessiond", "run", "--state-dir", state, "--listen", "127.0.0.1:0"
    )


@asynccontextmanager
async def calls(world: World, running: Running) -> AsyncIterator[Any]:
    """As a brain, without retries."""
    files = IdentityFiles(world.state / "brain" / "brain-1" / "identity")
    async with dial(running.facts["address"], Role.SESSIOND, files, retry=False) as channel:
        yield SessionStub(channel)


def fill(disk: Path, but: int = MEGABYTE // 4) -> None:
    """Somebody else takes what room there is, but for so many bytes."""
    with (disk / "ballast").open("ab") as file:
        free = os.statvfs(disk)
        file.write(bytes(max(0, free.f_bavail * free.f_bsize - but)))


def room(disk: Path) -> None:
    """And gives it back."""
    (disk / "ballast").unlink(missing_ok=True)
