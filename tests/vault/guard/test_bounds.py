"""However much, however slowly a server answers, it costs the vault little, and ends."""

import asyncio
import gzip
import socket
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.pace import AT_ONCE, SCALE, times
from tests.vault.guard.upstream import (
    HOST,
    UNREAD,
    Answer,
    Asked,
    Names,
    Upstream,
    Widened,
    guarded,
)
from vault.guard.errors import Cut, GuardError, NotConnected, TimedOut, TooLarge
from vault.guard.headers import bearer
from vault.guard.limits import MIB, Limits
from vault.guard.targets import Target
from vault.guard.transport import Guard, Request
from vault.secret import Secret

SECRET = Secret("tok_0123456789abcdefghij")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
GROWTH = 64 * MIB
UNIT = 0.02 * SCALE
"""Seconds of what is slow here."""


def get(there: Upstream) -> Request:
    return Request("GET", Target(HOST, there.port, "/"), [("Authorization", bearer(SECRET))])


def resident(of: str) -> int:
    """Bytes of this process that are in memory: `VmRSS` now, `VmHWM` at most since `forgotten`."""
    [line] = [each for each in Path("/proc/self/status").read_text().split("\n") if of in each]
    return int(line.split()[1]) * 1024


@asynccontextmanager
async def within_memory() -> AsyncIterator[None]:
    """What is done here, server and all, takes less memory than GROWTH."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    yield
    assert resident("VmHWM") - before < GROWTH


def flood(head: bytes, part: bytes, times_: int) -> Answer:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(times_):
            writer.write(part)
            await writer.drain()

    return answer


def trickle(head: bytes, *parts: bytes) -> Answer:
    """The parts one after another, and the last of them for ever, each after a unit."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        left = list(parts)
        while True:
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
            await asyncio.sleep(UNIT)  # the server is slow: that is what is tried

    return answer


async def ended(guard: Guard, there: Upstream, limits: Limits) -> GuardError:
    """The error with which a request ends; its connection ends too, and its slot is free."""

    async def ask() -> None:
        async with guard.send(get(there), limits=limits, lane="g") as response:
            async for _ in response:
                pass

    with pytest.raises(GuardError) as failed:
        await ask()
    async with asyncio.timeout(AT_ONCE):
        await there.gone.wait()
    assert [lane.users for lane in guard._lanes._lanes.values()] == [0]
    assert [lane.pool.connections for lane in guard._lanes._lanes.values()] == [[]]
    return failed.value


@pytest.mark.parametrize(
    ("head", "part", "often"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 * MIB), b'"' * MIB, 200),
        (HEAD + b"\r\n", b"data: " + b"x" * (MIB - 8) + b"\n\n", 1024),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + bytes(MIB) + b"\r\n", 1024),
    ],
    ids=["200 MB of JSON", "1 GB of events", "1 GB in chunks"],
)
async def test_a_flood_ends_at_its_limit_and_takes_little_memory_v42(
    tmp_path: Path, head: bytes, part: bytes, often: int
) -> None:
    async with guarded(tmp_path, flood(head, part, often)) as (guard, [there]), within_memory():
        error = await ended(guard, there, Limits())
    assert isinstance(error, TooLarge)
    assert error.fields == {"limit": "reply_bytes", "allowed": 10 * MIB}


async def test_a_bomb_ends_and_takes_little_memory_v42(tmp_path: Path) -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(compressor.compress(bytes(MIB)) for _ in range(200)) + compressor.flush()
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    async with guarded(tmp_path, flood(head, bomb, 1)) as (guard, [there]), within_memory():
        error = await ended(guard, there, Limits(reply_bytes=1024 * MIB))
    assert isinstance(error, TooLarge)
    assert error.fields["limit"] == "ratio"


async def test_many_tiny_events_hold_nobody_up_v42(tmp_path: Path) -> None:
    events = times(30_000, 1_000_000)
    tiny = b"9\r\ndata: 1\n\n\r\n" * 1000
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(events // 1000):
            writer.write(tiny)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    longest = 0.0
    over = asyncio.Event()

    async def other() -> None:
        nonlocal longest
        while not over.is_set():
            began = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - began)

    async with guarded(tmp_path, answer) as (guard, [there]), within_memory():
        beside = asyncio.create_task(other())
        came = 0
        async with guard.send(get(there), limits=Limits(reply_bytes=100 * MIB)) as response:
            async for part in response:
                came += len(part)
        over.set()
        await beside
    assert came == 9 * events
    assert longest < 0.5 * SCALE


@pytest.mark.parametrize(
    ("answer", "limits", "limit"),
    [
        (trickle(HEAD + b"\r\n", b"d"), Limits(idle=1, total=40 * UNIT), "total"),
        (trickle(HEAD + b"\r\n", b": progress\n\n"), Limits(idle=1, total=40 * UNIT), "total"),
        (trickle(HEAD, b"X-A: b\r\n"), Limits(first_byte=10 * UNIT), "first_byte"),
        (trickle(HEAD, b"X"), Limits(total=40 * UNIT), "total"),
        (trickle(b"", b"HTTP/1.1 102 P\r\n\r\n"), Limits(first_byte=10 * UNIT), "first_byte"),
    ],
    ids=["a byte at a time", "progress for ever", "a head for ever", "the same", "many heads"],
)
async def test_what_comes_slowly_ends_at_its_time_v43(
    tmp_path: Path, answer: Answer, limits: Limits, limit: str
) -> None:
    async with guarded(tmp_path, answer) as (guard, [there]):
        async with asyncio.timeout(AT_ONCE):
            error = await ended(guard, there, limits)
    assert isinstance(error, TimedOut)
    assert error.fields == {"limit": limit}
    assert error.sent


async def test_a_server_that_falls_silent_within_an_event_ends_at_its_idle_time_v43(
    tmp_path: Path,
) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\ndata: {")
        await writer.wait_closed()
        raise ConnectionError

    async with guarded(tmp_path, answer) as (guard, [there]):
        error = await ended(guard, there, Limits(idle=5 * UNIT))
    assert isinstance(error, TimedOut)
    assert error.fields == {"limit": "idle"}


async def test_a_server_that_closes_within_an_event_is_an_error_v43(tmp_path: Path) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n20\r\ndata: {")
        await writer.drain()
        writer.close()

    async with guarded(tmp_path, answer) as (guard, [there]):
        assert isinstance(await ended(guard, there, Limits()), Cut)


async def test_a_body_that_nobody_takes_ends_at_its_idle_time_v43(tmp_path: Path) -> None:
    async def much() -> AsyncIterator[bytes]:
        for _ in range(400):
            yield bytes(MIB)

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await writer.wait_closed()

    async with guarded(tmp_path, answer) as (guard, [there]), within_memory():
        request = Request("PUT", Target(HOST, there.port, UNREAD.decode()), body=much())
        with pytest.raises(TimedOut) as late:
            async with guard.send(request, limits=Limits(idle=10 * UNIT, request_bytes=500 * MIB)):
                pass
    assert late.value.fields == {"limit": "send"}


@pytest.mark.parametrize("where", ["name", "handshake"])
async def test_a_connection_that_never_comes_about_ends_in_time_v43(where: str) -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        port = silent.getsockname()[1]
        names = never if where == "name" else Names({HOST: [["127.0.0.1"]]})
        async with Guard(rule=Widened([port]), resolver=names) as guard:
            with pytest.raises(NotConnected) as late:
                async with guard.send(
                    Request("GET", Target(HOST, port, "/")), limits=Limits(connect=5 * UNIT)
                ):
                    pass
    assert not late.value.sent


async def test_what_was_compressed_and_is_cut_is_an_error(tmp_path: Path) -> None:
    data = gzip.compress(b"x" * 1000)[:-4]
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data)
    async with guarded(tmp_path, flood(head, data, 1)) as (guard, [there]):
        with pytest.raises(GuardError, match="malformed"):
            async with guard.send(get(there)) as response:
                await response.read()
