"""Redis through connections that speak only as much of its protocol as appending takes.

Nobody writes to Redis so; it shows what the server gives when its client costs next to nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

from bench.figures import DATA, Result, Watch
from bench.peers import CONNECTIONS, Address

_START_SECONDS = 30.0


async def redis_bare(address: Address, in_flight: int, seconds: float) -> Result:
    """Append events to a list a session; pipelined on one connection beyond CONNECTIONS."""
    connections = in_flight if in_flight <= CONNECTIONS else 1
    each = in_flight // connections
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(_connected(address)) for _ in range(connections)]
        await opened[0].ask(_command(b"FLUSHALL"), 1)
        watch = Watch(seconds)
        async with asyncio.TaskGroup() as group:
            for session, connection in enumerate(opened):
                group.create_task(_push(connection, session, each, watch))
    return watch.result()


class _Connection(asyncio.Protocol):
    """Sends commands and counts their replies: one line each, and an error raises."""

    def __init__(self) -> None:
        self._left = 0
        self._partial = b""
        self._replies: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\r\n")
        self._left -= len(lines)
        wrong = next((line for line in lines if line.startswith(b"-")), None)
        if self._replies is not None and not self._replies.done():
            if wrong is not None:
                self._replies.set_exception(RuntimeError(wrong.decode()))
            elif self._left <= 0:
                self._replies.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._replies is not None and not self._replies.done():
            self._replies.set_exception(exc or EOFError("Redis closed the connection"))

    async def ask(self, commands: bytes, count: int) -> None:
        """Send so many commands and wait for as many replies."""
        self._left = count
        self._replies = asyncio.get_running_loop().create_future()
        self.transport.write(commands)
        await self._replies


@asynccontextmanager
async def _connected(address: Address) -> AsyncIterator[_Connection]:
    host, port, password = address
    async with asyncio.timeout(_START_SECONDS):
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, host, port)
        await connection.ask(_command(b"AUTH", password.encode()), 1)
    try:
        yield connection
    finally:
        connection.transport.close()


async def _push(connection: _Connection, session: int, each: int, watch: Watch) -> None:
    commands = b"".join(
        _command(b"RPUSH", b"session:%d" % (session + number), DATA) for number in range(each)
    )
    while (sent := time.perf_counter()) < watch.until:
        await connection.ask(commands, each)
        watch.note(sent, time.perf_counter(), each)


def _command(*words: bytes) -> bytes:
    return b"".join(
        (b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    )
