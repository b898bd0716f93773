"""The process: killed without warning it keeps its word (invariant 2); it stops cleanly."""

import asyncio
import random
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.tls import IdentityFiles
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub
from tests.command import Command
from tests.pace import SCALE
from tests.pki import Pki
from tests.world import Running, World

WAIT = 30.0 * SCALE
SESSIONS = ("sesn_1", "sesn_2", "sesn_3")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A state folder with sessiond's identity and a brain's; nothing runs yet."""
    pki = Pki(tmp_path / "pki")
    state = tmp_path / "state"
    pki.issue("sessiond", "sessiond", directory=state / "sessiond" / "identity")
    pki.issue("brain", "brain-1", directory=state / "brain" / "brain-1" / "identity")
    world = World(state, term=10.0)
    yield world
    await world.end()


async def start(world: World, name: str = "sessiond") -> Running:
    state = str(world.state)
    return await world.start(
        name, "sessiond", "run", "--state-dir", state, "--listen", "127.0.0.1:0"
    )


def brain(world: World, running: Running) -> Any:
    files = IdentityFiles(world.state / "brain" / "brain-1" / "identity")
    return dial(running.facts["address"], Role.SESSIOND, files, retry=False)


class Goal:
    """A number of acknowledged events, to be reached by several appenders together."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.reached = asyncio.Event()

    def nearer(self) -> None:
        """One more was acknowledged."""
        self._left -= 1
        if self._left <= 0:
            self.reached.set()


class Appender:
    """Appends to its session, as fast as it is acknowledged, and notes what was."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.acked: dict[str, int] = {}
        self.sent = 0

    async def run(self, stub: Any, epoch: int, goal: Goal) -> None:
        """Until the server is gone."""
        in_flight: dict[int, list[str]] = {}
        sequence = 0
        call = stub.Append()

        async def send() -> None:
            nonlocal sequence
            sequence += 1
            ids = [f"e{self.sent + k}" for k in range(1, 2 + sequence % 3)]
            self.sent += len(ids)
            in_flight[sequence] = ids
            events = [
                types_pb2.NewEvent(id=id, type="agent.message", data=id.encode() * 50) for id in ids
            ]
            group = types_pb2.AppendGroup(
                sequence=sequence, session_id=self.session_id, events=events, epoch=epoch
            )
            await call.write(pb.AppendRequest(groups=[group]))

        try:
            for _ in range(8):
                await send()
            while (response := await call.read()) is not grpc.aio.EOF:
                for ack in response.acks:
                    assert not ack.HasField("status"), ack.status.message
                    for offset, id in enumerate(in_flight.pop(ack.sequence)):
                        self.acked[id] = ack.position + offset
                        goal.nearer()
                    await send()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # it was killed, which is the point

    async def check(self, stub: Any) -> None:
        """All that was acknowledged is there, at its position, gapless, and the chain holds."""
        log: list[types_pb2.Event] = []
        more = True
        while more:
            request = pb.GetEventsRequest(session_id=self.session_id, after=len(log), limit=1000)
            answer = await stub.GetEvents(request)
            log += answer.events
            more = answer.more
        assert [event.position for event in log] == list(range(1, len(log) + 1))
        by_id = {event.id: event for event in log}
        assert len(by_id) == len(log)
        for id, position in self.acked.items():
            assert by_id[id].position == position
            assert by_id[id].data == id.encode() * 50
        # In the order they were sent, whether acknowledged or not.
        assert [event.id for event in log] == [f"e{n}" for n in range(1, len(log) + 1)]


async def test_what_was_acknowledged_survives_kill_9_at_any_moment(world: World) -> None:
    appenders = [Appender(session_id) for session_id in SESSIONS]
    async with asyncio.timeout(2 * WAIT):
        for life in range(4):
            running = await start(world)
            async with brain(world, running) as channel:
                stub = SessionStub(channel)
                epochs = []
                for session_id in SESSIONS:
                    request = pb.CreateSessionRequest(session_id=session_id, workspace="default")
                    await stub.CreateSession(request)
                    acquire = pb.AcquireLeaseRequest(resource=f"session/{session_id}")
                    epochs.append((await stub.AcquireLease(acquire)).lease.epoch)
                assert epochs == [life + 1] * len(SESSIONS)
                for appender in appenders:
                    await appender.check(stub)
                    # What was sent and not acknowledged may be there, or not.
                    appender.sent = (
                        await stub.GetSession(pb.GetSessionRequest(session_id=appender.session_id))
                    ).session.head.position
                goal = Goal(random.randrange(50, 800))
                async with asyncio.TaskGroup() as group:
                    for appender, epoch in zip(appenders, epochs, strict=True):
                        group.create_task(appender.run(stub, epoch, goal))
                    await goal.reached.wait()
                    await running.kill(signal.SIGKILL)
        running = await start(world)
        async with brain(world, running) as channel:
            for appender in appenders:
                await appender.check(SessionStub(channel))
                assert appender.acked


async def test_a_lease_survives_the_process_and_has_one_full_term_again(world: World) -> None:
    async with asyncio.timeout(WAIT):
        running = await start(world)
        async with brain(world, running) as channel:
            stub = SessionStub(channel)
            await stub.CreateSession(
                pb.CreateSessionRequest(session_id="sesn_1", workspace="default")
            )
            held = await stub.AcquireLease(pb.AcquireLeaseRequest(resource="session/sesn_1"))
        await running.kill(signal.SIGKILL)
        running = await start(world)
        async with brain(world, running) as channel:
            ref = types_pb2.LeaseRef(resource="session/sesn_1", epoch=held.lease.epoch)
            answer = await SessionStub(channel).RenewLease(pb.RenewLeaseRequest(leases=[ref]))
            assert not answer.leases[0].HasField("status")


async def test_a_term_signal_ends_open_streams_and_the_process_at_once(world: World) -> None:
    async with asyncio.timeout(WAIT):
        running = await start(world)
        async with brain(world, running) as channel:
            stub = SessionStub(channel)
            watch = aiter(stub.WatchRunnable(pb.WatchRunnableRequest()))
            append = stub.Append()
            await anext(watch)
            loop = asyncio.get_running_loop()
            before = loop.time()
            await running.kill(signal.SIGTERM)
            assert loop.time() - before < 1.9  # the server's grace would be 2 s
            assert running.process.returncode == 0
            with pytest.raises(CarpalError), rpc_errors("sessiond"):
                await anext(watch)
            append.cancel()


async def test_a_second_process_on_the_same_state_is_refused_in_one_line(
    world: World, tmp_path: Path
) -> None:
    carpal = Command(tmp_path)
    async with asyncio.timeout(WAIT):
        await start(world)
        second = await carpal(
            "sessiond", "run", "--state-dir", str(world.state), "--listen", "127.0.0.1:0"
        )
    assert second.code == 2
    assert second.stderr.count("\n") == 1
    assert (
        "in use by another sessiond, or a restore: stop it, or choose another --state-dir"
        in second.stderr
    )


async def test_bad_starts_are_one_line_each(world: World, tmp_path: Path) -> None:
    carpal = Command(tmp_path)
    config = tmp_path / "sessiond.toml"
    config.write_text('listn = "127.0.0.1:0"\n')
    state = str(world.state)
    taken = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    for arguments, words in [
        (["--state-dir", str(tmp_path / "empty")], "does not exist"),
        (["--state-dir", state, "--config", str(config)], "unknown key 'listn'"),
        (["--state-dir", state, "--blob-cap", "-1"], "blob_cap: expected `int` >= 0"),
        (["--state-dir", state, "--listen", address], f"cannot listen on {address}"),
    ]:
        ended = await carpal("sessiond", "run", *arguments)
        lines = [line for line in ended.stderr.splitlines() if line.startswith("carpal: ")]
        assert ended.code == 2, ended.stderr
        assert len(lines) == 1
        assert words in lines[0]
        assert "Traceback" not in ended.stderr
    taken.close()
