"""Runs `adb`: each call has an end, whatever the phone, its cable or adb's server do.

A call is a process group of its own, killed when it is over, late, says too much or is cancelled,
and also when who called it is killed. What comes back is bytes of the phone's, which are believed
in nothing.

No call makes adb's server run: one that a hand started would end with the hand, under all others,
and would have keys that no phone knows, of the hand's own HOME. A server that is named
by an address is taken to be another machine's, which adb does not start.
"""

import asyncio
import contextlib
import io
import os
import shutil
import signal
from collections.abc import Sequence
from typing import NamedTuple

from hands.android import said
from hands.api import ToolError

INSTALL = "adb is not installed: apt-get install adb, or put it on the PATH of the daemon"
TEXT_MAX = 256 * 1024
"""Bytes of what a call may say; a screenshot has its own."""
_ERROR_MAX = 16 * 1024
LIST_LIMIT = 4.0
"""Seconds to list phones."""
_REST = 0.5
"""Seconds to read what a process wrote that has ended: one it started may hold the pipe open."""
_SERVER = ("-H", "127.0.0.1")
_SERVER_GONE = (b"cannot start server", b"cannot connect to daemon")


class Unreachable(ToolError):
    """The phone, or adb, did not answer as it should: why, and what to do."""


class Ran(NamedTuple):
    """How a call ended, and what it said."""

    code: int
    out: bytes
    err: bytes


def program() -> str:
    """Where adb is; empty when it is nowhere."""
    return shutil.which("adb") or ""


async def run(*arguments: str, limit: float, most: int = TEXT_MAX) -> Ran:
    """Run adb against the server that runs. `limit` is in seconds, `most` in bytes of its output.

    Raises Unreachable: it is not there, late, says more, was killed, or no server runs.
    """
    ran = await _run((*_SERVER, *arguments), limit, most)
    if ran.code and any(each in ran.err for each in _SERVER_GONE):
        raise Unreachable(
            "adb's server does not run: run `adb start-server` as the daemon's user, or have it "
            "started with the machine"
        )
    return ran


async def states() -> dict[str, str]:
    """The state of each phone that adb knows, by its serial. Raises Unreachable."""
    ran = await run("devices", limit=LIST_LIMIT)
    found = None if ran.code else said.states(ran.out)
    if found is None:
        why = said.line(ran.err or ran.out) or "nothing"
        raise Unreachable(f"adb was asked for its devices, and said what is no list: {why}")
    return found


async def _run(arguments: Sequence[str], limit: float, most: int) -> Ran:
    found = program()
    if not found:
        raise Unreachable(INSTALL)
    # Killed with who called: the group is its own, so that what ends ours would pass it by.
    bound = [path, "--pdeathsig", "KILL"] if (path := shutil.which("setpriv")) else []
    what = " ".join(each for each in arguments[:5] if each not in _SERVER)[:60]
    with contextlib.ExitStack() as stack:
        # Pipes of our own: asyncio's are waited for as long as anyone holds them open.
        (out, to_out), (err, to_err) = _pipe(stack), _pipe(stack)
        try:
            process = await asyncio.create_subprocess_exec(
                *(*bound, found, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"{found} cannot be started: {error.strerror}") from error
        to_out.close()
        to_err.close()
        kept, words = bytearray(), bytearray()
        flooded = asyncio.Event()
        ended = asyncio.create_task(process.wait())
        full = asyncio.create_task(flooded.wait())
        reading = [
            asyncio.create_task(_read(out.fileno(), kept, most, flooded)),
            asyncio.create_task(_read(err.fileno(), words, _ERROR_MAX, None)),
        ]
        try:
            ends = (ended, full)
            done, _ = await asyncio.wait(ends, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if ended in done:
                await asyncio.wait(reading, timeout=_REST)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for each in (*reading, full):
                each.cancel()
            await asyncio.wait((ended, full, *reading))
    if flooded.is_set():
        raise Unreachable(f"adb {what}: more than {most} bytes came, and it was ended")
    if ended not in done:
        raise Unreachable(f"adb {what}: no answer within {limit:g} s, and it was ended")
    code = ended.result()
    if code < 0:
        raise Unreachable(f"adb {what}: it was ended by {signal.Signals(-code).name}")
    return Ran(code, bytes(kept), bytes(words))


def _pipe(stack: contextlib.ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """Its end to read, which never blocks, and its end to write."""
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    return stack.enter_context(io.FileIO(read)), stack.enter_context(io.FileIO(write, "w"))


async def _read(pipe: int, kept: bytearray, most: int, flooded: asyncio.Event | None) -> None:
    """All of it, into `kept`; past `most` bytes it is `flooded`, or passes by unread."""
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    loop.add_reader(pipe, there.set)
    try:
        while True:
            await there.wait()
            there.clear()
            with contextlib.suppress(BlockingIOError):
                more = os.read(pipe, 64 * 1024)
                if not more:
                    return
                room = most - len(kept)
                kept += more[:room]
                if len(more) > room and flooded is not None:
                    flooded.set()
                    return
    finally:
        loop.remove_reader(pipe)
