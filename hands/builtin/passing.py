"""Bytes into a supervised hand's workspace and out of it: the daemon's end of the passage.

The daemon listens in the hand's folder, asks the supervisor to run one of its
own tools, and takes the one connection that this makes. Whoever it is at the
other end: what is written there is the hand's, and what comes from there is
bounded and otherwise as good as anything that a hand says.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from hands.contract import Call, Hand, HandLost, MountFailed, Outcome, Placing, Result

LIMIT = 3600.0
"""Seconds for one of them, from its turn on."""
_CONNECT_LIMIT = 60.0
"""Seconds for a new hand to connect, and for one that ended the connection to say why."""
_IDLE_LIMIT = 120.0
"""Seconds in which nothing moves."""
_NAMES_MAX = 1024 * 1024
"""Bytes of a tar for what takes no room on a disk: names, folders, the end."""
_FRAME_MAX = 256 * 1024
_LENGTH = struct.Struct(">I")

Take = Callable[[bytes], Awaitable[None]]
Work = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def place(hand: Hand, folder: Path, placing: Placing, data: AsyncIterator[bytes]) -> str:
    """See `Mountable.place`."""
    given = {"kind": placing.kind, "path": placing.path, "url": placing.url, "ref": placing.ref}
    if placing.kind == "git":
        call = _call(".place", given)
        async with _ending(hand, call, LIMIT + _CONNECT_LIMIT):
            return _said(await _outcome(hand, call))

    async def give(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for piece in data:
            for begin in range(0, len(piece), _FRAME_MAX):
                part = piece[begin : begin + _FRAME_MAX]
                writer.write(_LENGTH.pack(len(part)) + part)
                async with asyncio.timeout(_IDLE_LIMIT):
                    await writer.drain()
        writer.write(_LENGTH.pack(0))
        async with asyncio.timeout(_IDLE_LIMIT):
            await writer.drain()

    return await _pass(hand, folder, ".place", given, give, connect_limit=_CONNECT_LIMIT)


async def save(hand: Hand, folder: Path, take: Take) -> str:
    """See `Savable.save`."""

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(_IDLE_LIMIT):
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if size > _FRAME_MAX:
                    raise MountFailed(f"the hand sent a frame of {size} bytes")
                piece = await reader.readexactly(size)
            if not size:
                break
            await take(piece)
        writer.write(b"\0")  # all of it is here
        async with asyncio.timeout(_IDLE_LIMIT):
            await writer.drain()

    # Its turn comes after the calls that were told before.
    return await _pass(hand, folder, ".save", {}, receive, connect_limit=LIMIT)


def save_max(disk_bytes: int) -> int | None:
    """Bytes of the tar of what a disk of that size can hold; None for no limit.

    A file with something in it takes more there than its tar does, whose names may be long.
    """
    return 2 * disk_bytes + _NAMES_MAX if disk_bytes else None


def bounded(take: Take, most: int | None) -> Take:
    """`take` for so many bytes: a file with holes says any size, and costs its disk nothing."""
    taken = 0

    async def taking(piece: bytes) -> None:
        nonlocal taken
        taken += len(piece)
        if most is not None and taken > most:
            raise MountFailed(
                f"as a tar it has more than {most} bytes, and the hand's disk cannot hold that: "
                "some of its files have holes, or too many are empty"
            )
        await take(piece)

    return taking


async def _pass(
    hand: Hand,
    folder: Path,
    tool: str,
    given: dict[str, Any],
    work: Work,
    *,
    connect_limit: float,
) -> str:
    with listening(folder) as (name, listener):
        call = _call(tool, {**given, "socket": name})
        async with _ending(hand, call, connect_limit + LIMIT):
            return await _passed(hand, call, listener, work, connect_limit)


async def _passed(
    hand: Hand, call: Call, listener: socket.socket, work: Work, connect_limit: float
) -> str:
    moving = asyncio.create_task(_move(listener, work, connect_limit))
    running = asyncio.create_task(_outcome(hand, call))
    try:
        await asyncio.wait({moving, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():  # it failed before all had moved, and says why
            result = running.result()
            if result.outcome is not Outcome.OK:
                return _said(result)
            await asyncio.wait({moving}, timeout=_IDLE_LIMIT)
        moved = moving.exception() if moving.done() else TimeoutError()
        if isinstance(moved, (OSError, asyncio.IncompleteReadError)) and not running.done():
            await asyncio.wait({running}, timeout=_CONNECT_LIMIT)  # it says why it ended
        if running.done() and running.result().outcome is not Outcome.OK:
            return _said(running.result())
        if isinstance(moved, (OSError, asyncio.IncompleteReadError)):
            raise MountFailed("the hand ended the connection, or nothing moved on it any more")
        if moved is not None:
            raise moved
        return _said(await running)
    finally:
        for task in (moving, running):
            task.cancel()
        await asyncio.gather(moving, running, return_exceptions=True)


@asynccontextmanager
async def _ending(hand: Hand, call: Call, limit: float) -> AsyncIterator[None]:
    """Within `limit` seconds, whatever the hand says or does not say; else it is given up."""
    try:
        async with asyncio.timeout(limit) as timeout:
            yield
    except TimeoutError:
        if not timeout.expired():
            raise
        await hand.cancel(call.call_id, 0.0)
        raise MountFailed(f"the hand was not done with it in {limit:g} s") from None
    except BaseException:
        await hand.cancel(call.call_id, 0.0)
        raise


async def _move(listener: socket.socket, work: Work, connect_limit: float) -> None:
    async with asyncio.timeout(connect_limit):
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
    reader, writer = await asyncio.open_unix_connection(sock=accepted)
    writer.transport.set_write_buffer_limits(0)  # what is drained is all on its way
    try:
        await work(reader, writer)
    finally:
        writer.transport.abort()  # closing waits for a peer that reads nothing, for ever


async def _outcome(hand: Hand, call: Call) -> Result:
    result: Result | None = None
    async for step in hand.execute(call):
        if isinstance(step, Result):
            result = step
    if result is None:
        raise HandLost("its supervisor did not say how it ended")
    await hand.acknowledge(call.call_id)
    return result


def _said(result: Result) -> str:
    if result.outcome is not Outcome.OK:
        raise MountFailed(result.content)
    return result.content


def _call(tool: str, given: dict[str, Any]) -> Call:
    return Call(f"{tool}-{secrets.token_hex(8)}", tool, given, LIMIT)


@contextmanager
def listening(folder: Path) -> Iterator[tuple[str, socket.socket]]:
    """A socket of its own in the hand's folder, that the hand's user may connect to."""
    name = f"passage-{secrets.token_hex(8)}"
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A socket's address holds 107 bytes; through a descriptor any path is short.
        listener.bind(f"/proc/self/fd/{handle}/{name}")
        _let_the_hand_in(handle, name)
        listener.listen(1)
        listener.setblocking(False)
        yield name, listener
    finally:
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=handle)
        os.close(handle)


def _let_the_hand_in(folder: int, name: str) -> None:
    # By the very file that was made: the hand may have put another in its place.
    made = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(made)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise MountFailed("its folder is not to be trusted")
        Path(f"/proc/self/fd/{made}").chmod(0o666)
    finally:
        os.close(made)
