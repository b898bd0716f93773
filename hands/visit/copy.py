"""`carpal hand cp`: a file or a folder to a hand or from it.

What a hand sends is believed as little as what is sent to it: it is unpacked
beside its place, where nothing leads out of, and put there once it is whole.
"""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from carpal.errors import invalid, refuse
from carpal.operator.connection import Found
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from hands.inside import copying
from hands.inside.beneath import ToolError, Workspace
from hands.visit import terminal
from hands.visit.entering import Visit, entered

_REMOTE = re.compile(r"(?P<session>[A-Za-z0-9_-]{1,128}):(?P<hand>[^:/]*):(?P<path>.+)", re.DOTALL)


class Remote(NamedTuple):
    """A path in a hand."""

    session_id: str
    hand: str
    path: str


def remote(text: str) -> Remote | None:
    """What `SESSION:[HAND]:PATH` names; None for a path of this machine."""
    found = _REMOTE.fullmatch(text)
    return Remote(found["session"], found["hand"], found["path"]) if found else None


async def copy(found: Found, source: str, target: str, *, take: bool) -> str:
    """Copy it; says what was copied. Raises INVALID_FIELD unless one of the two is in a hand."""
    there, here = remote(source), remote(target)
    if (there is None) == (here is None):
        raise invalid("SOURCE", "one of SOURCE and TARGET must be SESSION:[HAND]:PATH")
    if there is not None:
        return await _from(found, there, Path(target), take=take)
    assert here is not None
    return await _to(found, Path(source), here, take=take)


async def _from(found: Found, source: Remote, target: Path, *, take: bool) -> str:
    name = PurePosixPath(source.path).name or "workspace"
    root, path = _place(target)
    opening = _opening(source, {"from": source.path}, take=take)
    async with entered(found, opening) as (_, visit):
        stream = _Stream(visit)
        receiving = asyncio.create_task(stream.receive())
        try:
            said = await asyncio.to_thread(
                _quiet, copying.take, Workspace(root), path, name, stream
            )
        finally:
            receiving.cancel()
            await asyncio.wait({receiving})
    return f"{root / said}" if path == "." else said


async def _to(found: Found, source: Path, target: Remote, *, take: bool) -> str:
    source = _thing(source)
    name = source.name or "root"
    opening = _opening(target, {"to": target.path, "name": name}, take=take)
    async with entered(found, opening) as (_, visit):
        stream = _Stream(visit)
        sending = asyncio.create_task(_send(source, visit, stream))
        hearing = asyncio.create_task(_left(visit))
        tasks = {sending, hearing}
        try:
            # Whichever fails first is why: the other one would wait for what does not come.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if not hearing.done():
                sending.result()
            return terminal.plain(await hearing)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _left(visit: Visit) -> str:
    """What the hand says that it did, once it has all of it."""
    said = ""
    async for each in visit.came():
        if each.HasField("end"):
            if each.end.problem:
                raise _failed(each.end.problem)
            said = each.end.said
    return said


def _place(target: Path) -> tuple[Path, str]:
    """The folder that it goes to, and where in there."""
    target = target.absolute()
    root, path = (target, ".") if target.is_dir() else (target.parent, target.name)
    if not root.is_dir():
        raise invalid("TARGET", f"there is no folder {root}")
    return root, path


def _thing(source: Path) -> Path:
    source = source.resolve()
    if not source.exists():
        raise invalid("SOURCE", f"there is no {source}")
    return source


async def _send(source: Path, visit: Visit, stream: "_Stream") -> None:
    workspace = Workspace(source.parent)
    try:
        await asyncio.to_thread(_quiet, copying.give, workspace, source.name or ".", stream)
    except _OverError:
        return  # why, the hand says
    await visit.end()


def _quiet(work: Callable[..., str], *arguments: object) -> str:
    try:
        return work(*arguments)
    except ToolError as error:
        raise _failed(str(error)) from None


def _failed(why: str) -> Exception:
    return refuse(
        Reason.INVALID_FIELD,
        f"not copied: {terminal.plain(why)}",
        action="correct it and try again",
    )


def _opening(there: Remote, options: dict[str, str], *, take: bool) -> pb.EnterOpen:
    return pb.EnterOpen(
        session_id=there.session_id,
        hand=there.hand,
        kind="copy",
        options=json.dumps(options).encode(),
        take=take,
    )


class _OverError(Exception):
    """Nobody takes what is sent any more."""


class _Stream:
    """The tunnel as a file, for a thread that reads or writes a tar."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._loop = asyncio.get_running_loop()
        self._came: asyncio.Queue[bytes | Exception] = asyncio.Queue(2)
        self._left = b""
        self._ended = False

    async def receive(self) -> None:
        """What comes, to its end: one that is not whole is no end."""
        try:
            async for said in self._visit.came():
                if said.HasField("end"):
                    problem = said.end.problem
                    await self._came.put(ToolError(problem) if problem else b"")
                elif said.data:
                    await self._came.put(said.data)
        except Exception as error:  # noqa: BLE001 - whatever cut it, who reads must hear of it
            await self._came.put(error)

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, fewer only at the end. Raises what cut it."""
        pieces = bytearray(self._left)
        while len(pieces) < size and not self._ended:
            came = asyncio.run_coroutine_threadsafe(self._came.get(), self._loop).result()
            if isinstance(came, Exception):
                raise came
            self._ended = not came
            pieces += came
        self._left = bytes(pieces[size:])
        return bytes(pieces[:size])

    def write(self, data: bytes) -> int:
        """Send it; waits until it is on its way."""
        asyncio.run_coroutine_threadsafe(self._visit.send(data), self._loop).result()
        if self._visit.over:
            raise _OverError
        return len(data)
