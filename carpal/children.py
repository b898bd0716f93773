"""Child processes: started together, awaited by their ready pipe, ended by pid.

They run in sessions of their own, so that a Ctrl-C in the terminal reaches
only their parent, which ends them in its order. A process that is not our
child is named by pid and start time, and signalled through a pidfd, so that
a pid that was used again is never hit.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, invalid, refuse
from carpal.process import interpreter
from carpal.status import Reason

GRACE = 6.0
"""Seconds between TERM and KILL: more than a server's own grace for running RPCs."""
AT_ONCE = 0.0
"""Of these, for what has nothing to put in order: KILL alone."""
_SETTINGS_MAX = 32 * 1024
"""Bytes of a held child's settings: a pipe takes as many without being read."""
_ENVIRONMENT_MAX = 256 * 1024
"""Bytes of a process's environment that are read: it may say that its environment is all memory."""
_LAST_WORDS = 8192
"""Bytes of the log looked at for why a child ended."""


@dataclass
class Child:
    """A `carpal` process we started."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    _pipe: asyncio.StreamReader
    _hold: int | None = None
    _settings: tuple[str, str] = ("", "")
    """How a held one calls its settings file, and what a person calls it."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def is_alive(self) -> bool:
        """Whether it has not ended, as far as the loop knows."""
        return self.process.returncode is None

    def release(self, settings: Path | None = None) -> None:
        """Let a held child go on, with these settings; once is enough.

        INVALID_FIELD when they cannot be read, or are more than a pipe holds.
        """
        if self._hold is None:
            return
        hold, self._hold = self._hold, None
        try:
            if settings is not None:
                self._settings = (self._settings[0], str(settings))
                with suppress(BrokenPipeError):  # it died; its ready pipe says so
                    os.write(hold, _text_of(settings))
        finally:
            os.close(hold)

    async def ready(self) -> dict[str, Any]:
        """The facts it announces once it serves; INTERNAL with its last words if it ends first."""
        line = await self._pipe.readline()
        if not line.endswith(b"\n"):
            raise await self._died()
        facts: dict[str, Any] = json.loads(line)
        return facts

    async def ended(self) -> str:
        """How it ended, in words, once it has."""
        return ending(await self.process.wait())

    async def _died(self) -> CarpalError:
        try:
            async with asyncio.timeout(GRACE):
                how = await self.ended()
        except TimeoutError:
            how = "closed its ready pipe and went on"
        why = last_line(self.log).replace(*self._settings)
        return refuse(
            Reason.INTERNAL,
            f"{self.name} {how} before it served" + (f": {why}" if why else ""),
            action=f"read {self.log}",
        )


async def start(
    name: str,
    arguments: Sequence[str],
    *,
    log: Path,
    environ: Mapping[str, str],
    stdin: bool = False,
    held: bool = False,
) -> Child:
    """Start `carpal ARGUMENTS`; its output goes to `log`. With `stdin` it reads from us.

    A `held` one loads its code and then waits for the end of its settings file,
    which is a pipe of ours, until it is released.
    """
    reading, writing = os.pipe()
    settings, hold = os.pipe() if held else (None, None)
    given = [] if settings is None else [settings]
    pipe = asyncio.StreamReader()
    try:
        # First, so that nothing waits between the start and the return: it may be cancelled.
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(pipe), os.fdopen(reading, "rb")
        )
        try:
            with log.open("wb") as output:
                process = await asyncio.create_subprocess_exec(
                    *interpreter(),
                    *arguments,
                    *(flag for fd in given for flag in ("--config", f"/dev/fd/{fd}")),
                    "--ready-fd",
                    str(writing),
                    stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environ,
                    start_new_session=True,
                    pass_fds=(writing, *given),
                )
        except BaseException:
            transport.close()
            if hold is not None:
                os.close(hold)
            raise
    finally:
        for fd in (writing, *given):  # so that its end reads as the end of the pipe
            os.close(fd)
    called = f"/dev/fd/{settings}"
    return Child(name, process, log, pipe, hold, (called, called))


def _text_of(settings: Path) -> bytes:
    try:
        text = settings.read_bytes()
    except OSError as error:
        raise invalid(str(settings), f"cannot be read: {error.strerror}") from None
    if len(text) > _SETTINGS_MAX:
        raise invalid(str(settings), f"has {len(text)} bytes, and may have {_SETTINGS_MAX}")
    return text


async def run(arguments: Sequence[str], *, environ: Mapping[str, str]) -> None:
    """Run `carpal ARGUMENTS` to its end; INTERNAL with its last words when it fails."""
    process = await asyncio.create_subprocess_exec(
        *interpreter(),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
        start_new_session=True,
    )
    try:
        _, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        said = stderr.decode(errors="replace").strip().splitlines()
        why = said[-1].removeprefix("carpal: ") if said else ending(process.returncode)
        raise refuse(
            Reason.INTERNAL,
            f"`carpal {' '.join(arguments[:2])}` failed",
            action=why,
        )


async def end(children: Iterable[Child], grace: float = GRACE) -> None:
    """TERM them all, and KILL those still there after `grace` seconds."""
    alive = [child for child in children if child.is_alive()]
    for child in alive:
        child.process.terminate()
        child.release()
    waits = [asyncio.ensure_future(child.process.wait()) for child in alive]
    try:
        if waits:
            await asyncio.wait(waits, timeout=grace)
    finally:
        for child in alive:
            if child.is_alive():
                child.process.kill()
    await asyncio.gather(*waits)


def ending(returncode: int) -> str:
    """An exit status in words."""
    if returncode < 0:
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"


def last_line(log: Path) -> str:
    """The last line of a log that is not empty."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_WORDS))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "").removeprefix(
        "carpal: "
    )


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field, the command, may hold anything, also spaces and brackets.
    return int(stat.rpartition(")")[2].split()[19])


def arguments_of(pid: int) -> list[str]:
    """A process's command line; empty when there is none."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0")[:-1]]


def environment_of(pid: int) -> list[str]:
    """The beginning of a process's environment; empty when there is none, or it is another's."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb", buffering=0) as file:
            raw = file.read(_ENVIRONMENT_MAX) or b""
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0")[:-1]]


def all_pids() -> list[int]:
    """Every process of this machine that we can see."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


async def end_stranger(pid: int, is_it: Callable[[int], bool], grace: float = GRACE) -> bool:
    """TERM, then KILL, a process that is not our child, if `is_it`; whether it was there.

    Without `grace` KILL alone.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_it(pid):
            return False
        for number in (signal.SIGTERM, signal.SIGKILL) if grace else (signal.SIGKILL,):
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                break
            if await _exits(handle, grace or GRACE):
                break
        return True
    finally:
        os.close(handle)


async def _exits(handle: int, seconds: float) -> bool:
    """Whether the process behind a pidfd ends in time."""
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, gone.set)
    try:
        async with asyncio.timeout(seconds):
            await gone.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
    return True
