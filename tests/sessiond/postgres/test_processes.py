"""Several sessiond processes on one PostgreSQL database: one log, one lease table, one picture.

The processes are real, and so are the server's death and the promotion of its standby.
"""

import asyncio
import itertools
import statistics
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub
from sessiond import writer
from sessiond.parts import Parts, running
from sessiond.postgres import channel as postgres_channel
from sessiond.postgres import follow as postgres_follow
from sessiond.postgres.store import PostgresStore
from sessiond.rows import Group
from sessiond.rules import sessions
from sessiond.rules.append import append
from sessiond.rules.leases import Wanted
from tests import postgres as clusters
from tests.command import Command
from tests.pace import SCALE
from tests.pki import Pki
from tests.postgres import Cluster, cluster, conninfo, standby
from tests.sessiond.desk import ADA, BRAIN, SELF, message, refused
from tests.world import Running, World

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        clusters.programs() is None,
        reason="PostgreSQL is not on this machine: Debian's package `postgresql` brings it",
    ),
]

WAIT = 60.0 * SCALE
SESSIONS = ("sesn_1", "sesn_2", "sesn_3")
SEEN_WITHIN = 0.05
"""Seconds from an append's answer on one process to its event on another, as promised."""


class Fleet:
    """Several sessiond processes, and a brain that calls each."""

    def __init__(self, world: World, url: str, stack: AsyncExitStack) -> None:
        self.world = world
        self._config = world.state / "sessiond.toml"
        self._config.touch(mode=0o600)
        self._config.write_text(f'store = "{url}"\n')
        self._stack = stack

    async def start(self, name: str) -> tuple[Running, Any]:
        """One more process, and how to call it."""
        running = await self.world.start(
            name,
            *("sessiond", "run", "--state-dir", str(self.world.state), "--listen", "127.0.0.1:0"),
            *("--config", str(self._config)),
        )
        files = IdentityFiles(self.world.state / "brain" / "brain-1" / "identity")
        channel = await self._stack.enter_async_context(
            dial(running.facts["address"], Role.SESSIOND, files)
        )
        return running, SessionStub(channel)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A state folder with two identities; nothing runs yet."""
    pki = Pki(tmp_path / "pki")
    state = tmp_path / "state"
    pki.issue("sessiond", "sessiond", directory=state / "sessiond" / "identity")
    pki.issue("brain", "brain-1", directory=state / "brain" / "brain-1" / "identity")
    world = World(state, term=10.0)
    yield world
    await world.end()


@asynccontextmanager
async def fleet(world: World, url: str) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield Fleet(world, url, stack)


@pytest.fixture
def primary() -> Iterator[Cluster]:
    """A server that a test may kill."""
    with cluster() as made:
        yield made


async def create(stub: Any, *session_ids: str) -> None:
    for session_id in session_ids:
        await stub.CreateSession(
            pb.CreateSessionRequest(session_id=session_id, workspace="default")
        )


class Appender:
    """Says one thing after the other, and each until it is acknowledged, as a client does."""

    def __init__(self, name: str, stub: Any, session_id: str) -> None:
        self.acked: dict[str, int] = {}
        self.moved = asyncio.Event()
        """Set at each acknowledgement."""
        self.again = 0
        """Times something had to be sent again."""
        self._name = name
        self._stub = stub
        self._session_id = session_id

    async def run(self, enough: Callable[[], bool]) -> None:
        """Until it is enough."""
        number = 0
        while not enough():
            number += 1
            event = types_pb2.NewEvent(id=f"{self._name}-{number}", type="user.message", data=b"1")
            request = pb.EmitEventRequest(session_id=self._session_id, event=event)
            while event.id not in self.acked:
                try:
                    with rpc_errors("sessiond"):
                        answer = await self._stub.EmitEvent(request)
                except CarpalError as error:
                    if error.reason not in (Reason.UNAVAILABLE, Reason.UNREACHABLE):
                        raise
                    self.again += 1
                    await asyncio.sleep(0.1)  # as the contract's RetryInfo asks
                else:
                    self.acked[event.id] = answer.event.position
                    self.moved.set()


async def several(count: int, *appenders: Appender) -> None:
    """Wait until so many were acknowledged."""
    while sum(len(appender.acked) for appender in appenders) < count:
        appenders[0].moved.clear()
        await appenders[0].moved.wait()


async def log(stub: Any, session_id: str) -> dict[str, int]:
    """Every event's position, by id: gapless, and no id twice."""
    found: dict[str, int] = {}
    more = True
    while more:
        request = pb.GetEventsRequest(session_id=session_id, after=len(found), limit=1000)
        answer = await stub.GetEvents(request)
        for event in answer.events:
            assert event.position == len(found) + 1
            assert event.id not in found
            found[event.id] = event.position
        more = answer.more
    return found


async def test_processes_that_append_to_the_same_sessions_leave_no_gap(
    world: World, postgres_url: str
) -> None:
    async with asyncio.timeout(WAIT), fleet(world, postgres_url) as served:
        # At once, on an empty database.
        started = await asyncio.gather(*[served.start(f"s{n}") for n in range(3)])
        stubs = [stub for _, stub in started]
        await create(stubs[0], *SESSIONS)
        appenders = [
            Appender(f"{n}-{k}", stub, SESSIONS[(n + k) % 3])
            for n, stub in enumerate(stubs)
            for k in range(6)
        ]
        async with asyncio.TaskGroup() as group:
            for appender in appenders:
                group.create_task(appender.run(lambda a=appender: len(a.acked) >= 20))  # type: ignore[misc]
        for stub in stubs:
            every = {id: at for name in SESSIONS for id, at in (await log(stub, name)).items()}
            acked = {id: at for appender in appenders for id, at in appender.acked.items()}
            assert every == acked
        assert sum(appender.again for appender in appenders) == 0


async def test_a_tail_on_one_sees_what_is_appended_through_another_at_once(
    world: World, postgres_url: str, record_property: Callable[[str, object], None]
) -> None:
    async with asyncio.timeout(WAIT), fleet(world, postgres_url) as served:
        (_, here), (_, there) = await asyncio.gather(served.start("s1"), served.start("s2"))
        await create(here, "sesn_1")
        tail = there.TailEvents(
            pb.TailEventsRequest(cursors=[types_pb2.TailCursor(session_id="sesn_1")])
        )
        assert (await tail.read()).live
        loop, delays = asyncio.get_running_loop(), []
        for number in range(1, 41):
            event = types_pb2.NewEvent(id=f"e{number}", type="user.message", data=b"{}")
            await here.EmitEvent(pb.EmitEventRequest(session_id="sesn_1", event=event))
            answered = loop.time()
            seen = await tail.read()
            delays.append(loop.time() - answered)
            assert [e.position for e in seen.events] == [number]
        tail.cancel()
    median = statistics.median(delays)
    record_property("tail_across_ms", round(median * 1000, 2))
    print(f"tail across processes: median {median * 1000:.1f} ms, max {max(delays) * 1000:.1f} ms")  # noqa: T201
    assert median < SEEN_WITHIN * SCALE


async def test_leases_and_wakes_are_one_picture(world: World, postgres_url: str) -> None:
    async with asyncio.timeout(WAIT), fleet(world, postgres_url) as served:
        (first, here), (_, there) = await asyncio.gather(served.start("s1"), served.start("s2"))
        runnable = there.WatchRunnable(pb.WatchRunnableRequest())
        leases = there.WatchLeases(pb.WatchLeasesRequest(prefix="session/"))
        assert not (await runnable.read()).sessions
        assert (await leases.read()).snapshot
        await create(here, "sesn_1")
        event = types_pb2.NewEvent(id="a", type="user.message", data=b"{}")
        await here.EmitEvent(pb.EmitEventRequest(session_id="sesn_1", event=event, wake=True))
        offer = await runnable.read()
        assert [session.session_id for session in offer.sessions] == ["sesn_1"]
        acquire = pb.AcquireLeaseRequest(resource="session/sesn_1", address="b:1")
        acquire.term.FromMilliseconds(1500)
        epoch = (await here.AcquireLease(acquire)).lease.epoch
        held = (await leases.read()).leases
        assert [(lease.resource, lease.epoch) for lease in held] == [("session/sesn_1", epoch)]
        # Whoever granted it is gone, and the other ends it when it is due.
        await first.kill()
        ended = (await leases.read()).leases
        assert [lease.HasField("expires_in") for lease in ended] == [False]
        offer = await runnable.read()
        assert [session.attempts for session in offer.sessions] == [1]


async def test_a_restart_of_the_database_is_a_pause(world: World, primary: Cluster) -> None:
    async with asyncio.timeout(WAIT), fleet(world, primary.conninfo) as served:
        (process, stub), (_, other) = await asyncio.gather(served.start("s1"), served.start("s2"))
        await create(stub, "sesn_1")
        tail = other.TailEvents(
            pb.TailEventsRequest(cursors=[types_pb2.TailCursor(session_id="sesn_1")])
        )
        acquire = pb.AcquireLeaseRequest(resource="session/sesn_1", address="b:1")
        held = (await stub.AcquireLease(acquire)).lease
        appender = Appender("a", stub, "sesn_1")
        down = asyncio.Event()

        async with asyncio.TaskGroup() as group:
            group.create_task(appender.run(lambda: down.is_set() and len(appender.acked) > 60))
            await several(20, appender)
            await asyncio.to_thread(primary.kill)
            with pytest.raises(CarpalError) as error, rpc_errors("sessiond"):
                await other.GetSession(pb.GetSessionRequest(session_id="sesn_1"))
            assert error.value.reason is Reason.UNAVAILABLE
            await asyncio.to_thread(primary.start)
            down.set()
        assert process.process.returncode is None
        renew = pb.RenewLeaseRequest(
            leases=[types_pb2.LeaseRef(resource="session/sesn_1", epoch=held.epoch)]
        )
        assert not (await stub.RenewLease(renew)).leases[0].HasField("status")
        assert await log(other, "sesn_1") == appender.acked
        assert appender.again > 0
        tail.cancel()


async def test_no_acknowledged_event_is_lost_when_the_standby_takes_over(
    world: World, primary: Cluster
) -> None:
    with ExitStack() as stack:
        second = await asyncio.to_thread(stack.enter_context, standby(primary))
        url = conninfo(primary, second)
        async with asyncio.timeout(WAIT), fleet(world, url) as served:
            (_, one), (_, two) = await asyncio.gather(served.start("s1"), served.start("s2"))
            await create(one, *SESSIONS)
            appenders = [Appender(f"{n}", (one, two)[n % 2], SESSIONS[n % 3]) for n in range(12)]
            promoted = asyncio.Event()

            def acked() -> set[str]:
                return {id for appender in appenders for id in appender.acked}

            async with asyncio.TaskGroup() as group:
                for appender in appenders:
                    group.create_task(
                        appender.run(
                            lambda a=appender: promoted.is_set() and len(a.acked) > 25  # type: ignore[misc]
                        )
                    )
                await several(150, *appenders)
                before = acked()
                await asyncio.to_thread(primary.kill)
                await asyncio.to_thread(second.promote)
                promoted.set()
            for stub in (one, two):
                found: dict[str, int] = {}
                for name in SESSIONS:
                    found |= await log(stub, name)
                assert found == {id: at for a in appenders for id, at in a.acked.items()}
                assert before <= set(found)


@pytest.fixture
async def two(
    database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Parts, Parts]]:
    """Two processes' worth of parts; on a database without LISTEN when asked."""
    if request.param == "polling":

        async def connect(conninfo: str) -> Any:
            raise psycopg.errors.FeatureNotSupported("LISTEN is not implemented")

        monkeypatch.setattr(postgres_channel, "connect", connect)
    first, second = PostgresStore(database), PostgresStore(database)
    async with running(first, SELF) as one, running(second, SELF) as other:
        yield one, other


@pytest.mark.parametrize("two", ["listening", "polling"], indirect=True)
async def test_the_other_process_follows(two: tuple[Parts, Parts]) -> None:
    here, there = two
    async with asyncio.timeout(WAIT):
        new = sessions.NewSession("sesn_1", "default", "", {}, {}, (message("a"),), True, b"r")
        with there.board.watch(frozenset()) as offers:
            await here.writer.run(lambda tx: sessions.create(tx, ADA, new))
            assert [session_id for session_id, _ in await offers.take(1)] == ["sesn_1"]
        cursor = types_pb2.TailCursor(session_id="sesn_1")
        tail = there.tails.tail(ADA, pb.TailEventsRequest(cursors=[cursor]))
        assert (await anext(tail)).head == 1
        wanted = Wanted("session/sesn_1", "b:1")
        with there.table.watch(lambda lease: True) as (_, changes):
            await here.writer.run(lambda tx: here.rules.acquire(tx, BRAIN, wanted))
            ((resource, lease),) = await changes.take(1)
            assert (resource, lease.epoch) == ("session/sesn_1", 1)
        group = Group("sesn_1", (message("b"),))
        await here.writer.run(lambda tx: append(tx, ADA, group))
        assert [event.id for event in (await anext(tail)).events] == ["b"]


@pytest.mark.parametrize("two", ["listening", "polling"], indirect=True)
async def test_what_was_committed_through_one_is_known_to_the_other_when_it_asks(
    two: tuple[Parts, Parts],
) -> None:
    async with asyncio.timeout(WAIT):
        for number in range(20):
            here, there = two if number % 2 else two[::-1]
            name = f"sesn_{number}"
            new = sessions.NewSession(name, "default", "", {}, {}, (message("a"),), True, b"r")
            wanted = Wanted(f"daemon/d-{number}", "b:1", workspace="default")
            await here.writer.run(lambda tx, n=new: sessions.create(tx, ADA, n))  # type: ignore[misc]
            await here.writer.run(lambda tx, w=wanted: here.rules.acquire(tx, BRAIN, w))  # type: ignore[misc]  # noqa: B023
            await there.up_to_date()
            with there.table.watch(lambda lease: True) as (live, _):
                assert wanted.resource in {lease.resource for lease in live}
            with there.board.watch(frozenset()) as offers:
                assert name in dict(offers.take_now(100))


async def test_whoever_asks_what_others_committed_is_refused_in_time_when_it_cannot_be_read(
    world: World, primary: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(WAIT), running(PostgresStore(primary.conninfo), SELF) as parts:
        monkeypatch.setattr(postgres_follow, "ASKED", WAIT)
        await parts.up_to_date()
        monkeypatch.setattr(postgres_follow, "ASKED", 0.1)
        await asyncio.to_thread(primary.kill)
        with refused(Reason.UNAVAILABLE):
            await parts.up_to_date()
        await asyncio.to_thread(primary.start)
        monkeypatch.setattr(postgres_follow, "ASKED", WAIT)
        await parts.up_to_date()


async def test_a_commit_that_waits_for_a_standby_for_ever_does_not_keep_a_process_from_ending(
    world: World, primary: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LAST_COMMITS", 0.1)
    async with asyncio.timeout(WAIT):
        async with running(PostgresStore(primary.conninfo), SELF) as parts:
            new = sessions.NewSession("sesn_1", "default", "", {}, {}, (), False, b"r")
            await parts.writer.run(lambda tx: sessions.create(tx, ADA, new))
            primary.execute(
                psycopg.sql.SQL("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (nobody)'")
            )
            primary.execute(psycopg.sql.SQL("SELECT pg_reload_conf()"))
            appending = asyncio.create_task(_append_on_and_on(parts))
            await asyncio.to_thread(primary.execute, psycopg.sql.SQL(_UNTIL_ONE_WAITS))
        with pytest.raises(CarpalError) as error:
            await appending
        assert error.value.reason is Reason.UNAVAILABLE


async def _append_on_and_on(parts: Parts) -> None:
    """The server does not heed its new settings at once."""
    for number in itertools.count():
        group = Group("sesn_1", (message(str(number)),))
        await parts.writer.run(lambda tx, g=group: append(tx, ADA, g))  # type: ignore[misc]


_UNTIL_ONE_WAITS = """DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep') LOOP
    PERFORM pg_sleep(0.005);
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
END $$"""


async def test_a_password_in_the_arguments_is_refused_in_one_line(
    world: World, tmp_path: Path
) -> None:
    carpal = Command(tmp_path)
    async with asyncio.timeout(WAIT):
        ended = await carpal(
            *("sessiond", "run", "--state-dir", str(world.state)),
            *("--store", "postgresql://user:sesame@127.0.0.1/d"),
        )
    assert ended.code == 2
    assert ended.stderr.count("\n") == 1
    assert "PGPASSFILE" in ended.stderr
    assert "sesame" not in ended.stderr
