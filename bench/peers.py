"""PostgreSQL and Redis as durable logs, each through its usual client, as suits it best.

Both are Debian's, private processes on loopback that sync every commit. In flight are so many
connections, each waiting for its own event, as separate writers would; beyond CONNECTIONS one
connection pipelines them, which lets the server commit many at once, as we do.
"""

import asyncio
import itertools
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import psycopg
from redis.asyncio import Redis

from bench.figures import DATA, Result, Watch
from tests import postgres as private
from tests.notified import Server, free_port, owned_by

CONNECTIONS = 64
"""The most that write side by side."""
_SCHEMA = (
    b"DROP TABLE IF EXISTS events",
    b"CREATE TABLE events (session bigint NOT NULL, position bigint NOT NULL, data bytea NOT NULL)",
    b"CREATE UNIQUE INDEX events_position ON events (session, position)",
)
_INSERT = b"INSERT INTO events VALUES (%b, %b, %b)"

Address = tuple[str, int, str]
"""Host, port and password of a Redis."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """A PostgreSQL that serves; a URL of a database in it."""
    if private.programs() is None:
        raise RuntimeError("PostgreSQL is not on this machine: scripts/setup bench installs it")
    with private.cluster({"shared_buffers": "256MB", "max_wal_size": "4GB"}) as cluster:
        yield cluster.database("log")


async def postgres(conninfo: str, in_flight: int, seconds: float) -> Result:
    """Insert into a table, unique by session and position, prepared, one commit each."""
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
            )
            for _ in range(in_flight if in_flight <= CONNECTIONS else 1)
        ]
        for statement in _SCHEMA:
            await connections[0].execute(statement)
        watch = Watch(seconds)
        async with asyncio.TaskGroup() as group:
            for session, connection in enumerate(connections):
                if in_flight <= CONNECTIONS:
                    group.create_task(_insert(connection, session, watch))
                else:
                    group.create_task(_insert_many(connection, in_flight, watch))
    return watch.result()


async def _insert(connection: psycopg.AsyncConnection, session: int, watch: Watch) -> None:
    cursor = connection.cursor()
    for position in itertools.count(1):
        sent = time.perf_counter()
        if sent >= watch.until:
            return
        await cursor.execute(_INSERT, (session, position, DATA), prepare=True)
        watch.note(sent, time.perf_counter())


async def _insert_many(connection: psycopg.AsyncConnection, in_flight: int, watch: Watch) -> None:
    cursor = connection.cursor()
    for position in itertools.count(1):
        sent = time.perf_counter()
        if sent >= watch.until:
            return
        async with connection.pipeline():
            for session in range(in_flight):
                await cursor.execute(_INSERT, (session, position, DATA), prepare=True)
        watch.note(sent, time.perf_counter(), in_flight)


@contextmanager
def redis_server() -> Iterator[Address]:
    """A Redis that serves, and syncs what was appended before it answers."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("Redis is not on this machine: scripts/setup bench installs it")
    folder = Path(tempfile.mkdtemp(prefix="carpal-redis-"))
    server: Server | None = None
    try:
        owned_by(folder, "redis")
        address = ("127.0.0.1", free_port(), secrets.token_hex(16))
        settings = f"""
            bind {address[0]}
            port {address[1]}
            requirepass {address[2]}
            supervised systemd
            appendonly yes
            appendfsync always
            auto-aof-rewrite-percentage 0
            save ""
        """
        server = Server([program, "-"], folder=folder, user="redis", stdin=settings.encode())
        yield address
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(folder)


async def redis(address: Address, in_flight: int, seconds: float) -> Result:
    """Append to a list a session: RPUSH costs Redis a little less than XADD."""
    host, port, password = address
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                Redis(host=host, port=port, password=password, single_connection_client=True)
            )
            for _ in range(in_flight if in_flight <= CONNECTIONS else 1)
        ]
        await clients[0].flushall()
        watch = Watch(seconds)
        async with asyncio.TaskGroup() as group:
            for session, client in enumerate(clients):
                if in_flight <= CONNECTIONS:
                    group.create_task(_push(client, session, watch))
                else:
                    group.create_task(_push_many(client, in_flight, watch))
    return watch.result()


async def _push(client: Redis, session: int, watch: Watch) -> None:
    key = f"session:{session}"
    while (sent := time.perf_counter()) < watch.until:
        await client.rpush(key, DATA)
        watch.note(sent, time.perf_counter())


async def _push_many(client: Redis, in_flight: int, watch: Watch) -> None:
    keys = [f"session:{session}" for session in range(in_flight)]
    while (sent := time.perf_counter()) < watch.until:
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.rpush(key, DATA)
        await pipeline.execute()
        watch.note(sent, time.perf_counter(), in_flight)
