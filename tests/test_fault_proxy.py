"""Each fault of the proxy does what it says, and can be healed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.faults import FaultProxy, Way, fault_proxy
from tests.pace import AT_ONCE

QUIET = 0.1
"""Seconds after which what has not come is held back; what comes takes a thousandth."""
BIG = 8 * 1024 * 1024


class End:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hears(self, data: bytes) -> None:
        async with asyncio.timeout(AT_ONCE):
            assert await self.reader.readexactly(len(data)) == data

    async def is_reset(self) -> None:
        with pytest.raises(ConnectionResetError):
            await self.to_its_end()

    async def to_its_end(self) -> None:
        async with asyncio.timeout(AT_ONCE):
            while await self.reader.read(65536):
                pass

    async def hears_nothing(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUIET):
                await self.reader.read(1)

    async def close(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class Path:
    """A proxy before a server, and both ends of whatever is dialled."""

    proxy: FaultProxy
    accepted: "asyncio.Queue[End]"
    ends: list[End]

    async def dial(self) -> tuple[End, End]:
        """Who dialled, and who answered."""
        dialled = await self.dial_alone()
        async with asyncio.timeout(AT_ONCE):
            return dialled, await self.accepted.get()

    async def dial_alone(self) -> End:
        host, _, port = self.proxy.address.rpartition(":")
        end = End(*await asyncio.open_connection(host, int(port)))
        self.ends.append(end)
        return end


@asynccontextmanager
async def a_path() -> AsyncIterator[Path]:
    accepted: asyncio.Queue[End] = asyncio.Queue()
    ends: list[End] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(End(reader, writer))
        accepted.put_nowait(ends[-1])

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with fault_proxy(f"{host}:{port}") as proxy:
        try:
            yield Path(proxy, accepted, ends)
        finally:
            server.close()
            await proxy.end()
            for end in ends:
                await end.close()


@pytest.fixture
async def path() -> AsyncIterator[Path]:
    async with a_path() as made:
        yield made


async def test_without_a_fault_bytes_and_ends_pass_both_ways(path: Path) -> None:
    client, server = await path.dial()
    client.say(b"up")
    await server.hears(b"up")
    server.say(b"down")
    await client.hears(b"down")
    client.writer.write_eof()
    assert await server.reader.read() == b""
    server.say(b"still")
    await client.hears(b"still")
    server.writer.write_eof()
    assert await client.reader.read() == b""


async def test_a_reader_that_is_slow_slows_the_writer_and_loses_nothing(path: Path) -> None:
    client, server = await path.dial()
    data = bytes(range(256)) * (BIG // 256)
    client.say(data)
    await server.hears(data)
    assert path.proxy.connections[0].up.passed == BIG


async def test_a_cut_is_a_reset_at_both_ends_and_the_next_connection_is_whole(path: Path) -> None:
    client, server = await path.dial()
    path.proxy.cut()
    await client.is_reset()
    await server.is_reset()
    client, server = await path.dial()
    client.say(b"again")
    await server.hears(b"again")


async def test_a_cut_of_one_connection_leaves_the_others(path: Path) -> None:
    first, _ = await path.dial()
    second, server = await path.dial()
    path.proxy.connections[0].cut()
    await first.is_reset()
    second.say(b"whole")
    await server.hears(b"whole")


async def test_while_it_refuses_who_dials_is_reset_until_it_is_healed(path: Path) -> None:
    path.proxy.refuse()
    await (await path.dial_alone()).is_reset()
    path.proxy.heal()
    client, server = await path.dial()
    client.say(b"x")
    await server.hears(b"x")


async def test_with_nobody_listening_who_dials_is_reset() -> None:
    async with fault_proxy("127.0.0.1:1") as proxy:
        host, _, port = proxy.address.rpartition(":")
        end = End(*await asyncio.open_connection(host, int(port)))
        await end.is_reset()
        await end.close()


async def test_a_blackhole_swallows_bytes_and_ends_and_keeps_the_sockets_open(path: Path) -> None:
    client, server = await path.dial()
    path.proxy.blackhole()
    client.say(b"lost")
    server.say(b"lost")
    client.writer.write_eof()
    await server.hears_nothing()
    await client.hears_nothing()
    assert path.proxy.connections[0].up.swallowed == 4
    path.proxy.heal()
    server.say(b"found")
    await client.hears(b"found")


async def test_who_dials_into_a_blackhole_is_connected_and_hears_nothing(path: Path) -> None:
    path.proxy.blackhole()
    client, server = await path.dial()
    server.say(b"lost")
    await client.hears_nothing()


async def test_a_blackhole_of_one_direction_leaves_the_other(path: Path) -> None:
    client, server = await path.dial()
    path.proxy.blackhole(Way.DOWN)
    client.say(b"up")
    await server.hears(b"up")
    server.say(b"lost")
    await client.hears_nothing()


@pytest.mark.parametrize("way", list(Way))
async def test_what_is_stalled_comes_whole_once_it_is_healed(path: Path, way: Way) -> None:
    client, server = await path.dial()
    path.proxy.stall(way)
    sender, receiver = (client, server) if way is Way.UP else (server, client)
    sender.say(b"late")
    await receiver.hears_nothing()
    receiver.say(b"the other way")
    await sender.hears(b"the other way")
    path.proxy.heal()
    await receiver.hears(b"late")


async def test_who_dials_into_a_stalled_path_is_heard_once_it_is_healed(path: Path) -> None:
    path.proxy.stall()
    client = await path.dial_alone()
    client.say(b"late")
    await asyncio.sleep(QUIET)
    path.proxy.heal()
    async with asyncio.timeout(AT_ONCE):
        server = await path.accepted.get()
    await server.hears(b"late")


async def test_what_is_delayed_comes_later_and_in_order(path: Path) -> None:
    client, server = await path.dial()
    path.proxy.delay(QUIET, Way.UP)
    began = time.monotonic()
    client.say(b"one ")
    await asyncio.sleep(0)
    client.say(b"two ")
    await server.hears(b"one two ")
    assert time.monotonic() - began >= QUIET
    path.proxy.delay(60, Way.UP)
    client.say(b"three ")
    await asyncio.sleep(QUIET / 10)
    path.proxy.heal()
    client.say(b"four")
    await server.hears_nothing()  # it does not overtake what was on its way


@pytest.mark.parametrize("told", list(Way))
async def test_a_half_open_connection_ends_for_one_end_and_never_for_the_other(
    path: Path, told: Way
) -> None:
    client, server = await path.dial()
    path.proxy.half_open(told)
    ended, untold = (client, server) if told is Way.UP else (server, client)
    await ended.is_reset()
    untold.say(b"into the void")
    await untold.hears_nothing()
    assert path.proxy.open == []


@pytest.mark.parametrize("way", list(Way))
async def test_a_reset_in_the_middle_passes_so_many_bytes_and_no_more(path: Path, way: Way) -> None:
    client, server = await path.dial()
    path.proxy.reset_after(3, way)
    sender, receiver = (client, server) if way is Way.UP else (server, client)
    sender.say(b"12345")
    await receiver.hears(b"123")
    await receiver.is_reset()
    await sender.is_reset()


async def test_at_its_end_nothing_of_it_is_left() -> None:
    async with a_path() as path:
        client, _ = await path.dial()
        await path.proxy.end()
        await client.is_reset()
        address = path.proxy.address
    host, _, port = address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))
