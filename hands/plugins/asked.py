"""Asks a plugin's class something, in a process that is killed when it does not answer.

What it is, which units it has, and to reset one. The process ends with its daemon, however that
ends, and what it started with it: a reset that nobody waits for must not meet the next one.
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from hands.contract import Unit
from hands.inside.shell import ALWAYS
from hands.plugins import told, told_units
from hands.plugins.told import Told

LIMIT = 20.0
"""Seconds to be imported, to describe itself, and to be probed; or to name its units."""
_WORDS_LIMIT = 1.0
"""Seconds to read what a process wrote that has ended."""
_TAIL = 2000
"""Bytes of what it wrote last that are kept."""
_HERE = Path(__file__).resolve().parents[2]
"""Where our own packages are."""


def command(mode: str, target: str, *more: str) -> list[str]:
    """A plugin's process: of a hand, where `mode` is run."""
    module = "hands.plugins.host" if mode == "run" else "hands.plugins.answering"
    return [sys.executable, "-P", "-m", module, mode, target, *more]


def environment() -> dict[str, str]:
    """What it gets of the daemon's: where programs and packages are, and who it runs as."""
    passed = ("PATH", "USER", "LOGNAME", "HOME", "VIRTUAL_ENV")
    paths = (os.environ.get("PYTHONPATH", ""), str(_HERE))
    return {
        **ALWAYS,
        "PATH": os.defpath,
        **{name: os.environ[name] for name in passed if name in os.environ},
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
    }


async def ask(name: str, target: str, limit: float = LIMIT) -> Told:
    """What the class says of itself, or why it says nothing; raises nothing else."""
    late = (
        f"it did not say what it is within {limit:g} s; see what it does "
        "when it is imported, and in `probe`"
    )
    try:
        return told.read(name, await _said("describe", target, "when it was imported", limit, late))
    except ValueError as error:
        return told.broken(name, str(error))


async def units(target: str, limit: float = LIMIT) -> tuple[Unit, ...]:
    """The units that the class names now. Raises ValueError, which says why that is not known."""
    late = f"it did not name its units within {limit:g} s; see what it does in `units`"
    return told_units.read(await _said("units", target, "in `units`", limit, late))


async def reset(target: str, unit_id: str) -> None:
    """Have the class reset a unit; when that is late, cancel it. Raises ValueError, with why."""
    told_units.was_reset(await _said("reset", target, "in `reset`", None, "", unit_id))


async def _said(
    mode: str, target: str, when: str, limit: float | None, late: str, *more: str
) -> bytes:
    """The line that its process writes. Raises ValueError: there is none, and why."""
    try:
        read, write = os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"its process cannot be started: {error}") from error
    try:
        process = await asyncio.create_subprocess_exec(
            *command(mode, target, str(write), *more),
            stdin=asyncio.subprocess.PIPE,  # by whose end it knows of its daemon's
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(),
            cwd="/",
            pass_fds=(write,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(read)
        raise ValueError(f"its process cannot be started: {error}") from error
    finally:
        os.close(write)
    said, words = asyncio.create_task(_line(read)), asyncio.create_task(_last(process))
    try:
        async with asyncio.timeout(limit):
            data = await said
            if not data:
                await process.wait()
    except TimeoutError:
        raise ValueError(late) from None
    finally:
        said.cancel()
        # All of it: what it started is of its group, unless it took pains not to be.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.wait({words}, timeout=_WORDS_LIMIT)
        words.cancel()
        last = (await asyncio.gather(words, return_exceptions=True))[0]
    if not data:
        how = f"exit code {process.returncode}"
        if process.returncode and process.returncode < 0:
            how = signal.Signals(-process.returncode).name
        why = f": {last}" if isinstance(last, str) and last else ""
        raise ValueError(f"its process ended by {how} {when}{why}")
    return data


async def _line(read: int) -> bytes:
    """What it writes to our pipe, up to a line's end; bounded."""
    loop = asyncio.get_running_loop()
    data = b""
    os.set_blocking(read, False)
    try:
        while not data.endswith(b"\n") and len(data) <= told.DESCRIBED_MAX:
            there = asyncio.Event()
            loop.add_reader(read, there.set)
            try:
                await there.wait()
            finally:
                loop.remove_reader(read)
            more = os.read(read, 64 * 1024)
            if not more:
                break
            data += more
    finally:
        os.close(read)
    return data


async def _last(process: asyncio.subprocess.Process) -> str:
    """The last line of all it writes, however much that is."""
    assert process.stdout is not None
    tail = b""
    try:
        while more := await process.stdout.read(64 * 1024):
            tail = (tail + more)[-_TAIL:]
    except asyncio.CancelledError:
        pass  # what came so far is what there is
    return tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
