"""A person in a supervised hand: the daemon's end of the socket to the process that serves them.

As with `passing`, whoever it is at the other end: what is written there is the
hand's, and what comes from there is bounded and otherwise as good as anything
that a hand says.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from hands.builtin import passing
from hands.contract import Bytes, EnterFailed, Entrance, HandLost, Left
from hands.inside import tunnel_frames as frames

_CONNECT_LIMIT = 15.0
"""Seconds for the process to be there."""
_LEFT_LIMIT = 8.0
"""Seconds for all of it to be dead: a grace, and a sweep that gives up after 5."""
_TEXT_MAX = 2000
"""Characters of what it says of its end."""
_READ_MAX = 256 * 1024
"""Bytes that are read ahead of who takes them."""


@asynccontextmanager
async def enter(
    folder: Path,
    entrance: Entrance,
    say: Callable[..., None],
    left: "asyncio.Future[str]",
    lost: "asyncio.Future[str]",
) -> AsyncIterator["Connected"]:
    """Have a hand serve one tunnel, while the block lasts; `left` is set once all of it is over.

    Raises EnterFailed and HandLost.
    """
    with passing.listening(folder) as (name, listener):
        say(
            op="enter",
            tunnel_id=entrance.tunnel_id,
            kind=entrance.kind,
            options=dict(entrance.options),
            socket=name,
        )
        try:
            accepted = await _accepted(listener, left, lost)
            reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=_READ_MAX // 2)
            writer.transport.set_write_buffer_limits(frames.FRAME_MAX)
            try:
                yield Connected(reader, writer, lost)
            finally:
                writer.transport.abort()
        finally:
            say(op="leave", tunnel_id=entrance.tunnel_id)
            # Also when this is cancelled: the hand's calls go on only once nobody is in it.
            await _until_left(left, lost)


async def _accepted(listener: Any, left: "asyncio.Future[str]", lost: "asyncio.Future[str]") -> Any:
    loop = asyncio.get_running_loop()
    accepting = asyncio.ensure_future(loop.sock_accept(listener))
    first: set[asyncio.Future[Any]] = {accepting, left, lost}
    try:
        await asyncio.wait(first, timeout=_CONNECT_LIMIT, return_when=asyncio.FIRST_COMPLETED)
        if accepting.done():
            return accepting.result()[0]
    finally:
        if not accepting.done():
            accepting.cancel()
            await asyncio.wait({accepting})
    if lost.done():
        raise HandLost(lost.result())
    why = left.result() if left.done() else f"nothing was there within {_CONNECT_LIMIT:g} s"
    raise EnterFailed(why or "it ended at once")


async def _until_left(left: "asyncio.Future[str]", lost: "asyncio.Future[str]") -> None:
    waiting = asyncio.ensure_future(
        asyncio.wait({left, lost}, timeout=_LEFT_LIMIT, return_when=asyncio.FIRST_COMPLETED)
    )
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await waiting
        raise


class Connected:
    """One tunnel's hand end."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lost: "asyncio.Future[str]",
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._lost = lost
        self._parser = frames.Parser()
        self._came: deque[tuple[bytes, bytes]] = deque()
        """Frames that were not given yet."""

    async def give(self, data: bytes) -> None:
        """What the person sends."""
        await self._write(frames.framed(frames.DATA, data))

    async def resize(self, rows: int, columns: int) -> None:
        """Another size."""
        await self._write(frames.told(frames.RESIZE, rows=rows, columns=columns))

    async def end(self) -> None:
        """No more."""
        await self._write(frames.framed(frames.END))

    async def _write(self, data: bytes) -> None:
        with suppress(ConnectionError):  # what it says of its end is still to be read
            self._writer.write(data)
            await self._writer.drain()

    async def take(self, most: int) -> Bytes | Left:
        """All that is there of one kind, as far as it fits."""
        try:
            while not self._came:
                data = await self._reader.read(_READ_MAX // 2)
                if not data:
                    raise ConnectionResetError
                self._came.extend(self._parser.feed(data))
            kind, data = self._came.popleft()
            if kind == frames.EXIT:
                return _left(data)
            if kind not in {frames.DATA, frames.ERROR, frames.END}:
                raise ValueError(f"a frame {kind!r}")
            pieces, size = [data], len(data)
            while self._came and self._came[0][0] == kind and size + len(self._came[0][1]) <= most:
                pieces.append(self._came.popleft()[1])
                size += len(pieces[-1])
            return Bytes(b"".join(pieces), error=kind == frames.ERROR)
        except ConnectionError:
            why = self._lost.result() if self._lost.done() else "its process in the hand was killed"
            return Left(problem=why, theirs=False)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            return Left(problem=f"what the hand said is not understood: {error}", theirs=False)


def _left(data: bytes) -> Left:
    said = json.loads(data)
    code = said.get("code")
    if code is not None and not (isinstance(code, int) and 0 <= code < 256):
        raise ValueError("an exit code")
    problem, words = (str(said.get(key) or "")[:_TEXT_MAX] for key in ("problem", "said"))
    return Left(code, problem, words)
