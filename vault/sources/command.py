"""A secret manager reached by a command of the owner's, which prints the value.

It gets the reference as one JSON object on standard input, and where its arguments say `{path}`,
`{key}` or `{version}`. What it prints is the value, without the end of the line. It has no shell,
no variable but those named, no file open but its three, ten seconds and 8 KiB; then it is killed,
with all of its process group. What it says on standard error is nobody's: it may be the secret.
"""

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from vault.guard.transport import Guard
from vault.secret import MOST, Secret
from vault.sources import settings as said
from vault.sources.reference import Reference
from vault.sources.source import Failure, SourceFailed

SECONDS = 10.0
AT_ONCE = 4
"""Commands at a time."""
_PLACE = re.compile(r"\{(path|key|version)\}")


class CommandSource:
    """Runs `settings["argv"]`; `settings["environment"]` names the variables it inherits."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        said.known(settings, ("argv", "environment"))
        self._argv = said.texts(settings, "argv")
        if not self._argv or not Path(self._argv[0]).is_absolute():
            raise ValueError("argv must be a list of texts that begins with a whole path")
        self._names = said.texts(settings, "environment")
        # Threads: not every event loop hears of the end of a child whose own children live on.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="vault-source")

    async def fetch(self, reference: Reference, guard: Guard) -> Secret:
        """As `vault.sources.source.Source`. Who leaves lets it run to its end, which is bounded."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, reference)

    def _run(self, reference: Reference) -> Secret:
        parts = {"path": reference.path, "key": reference.key, "version": reference.version}
        argv = [_filled(each, parts) for each in self._argv]
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in self._names if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SourceFailed(Failure.FAILED, f"it does not start: {error.strerror}") from None
        with process:
            try:
                value = _answer(process, json.dumps(parts).encode() + b"\n")
            finally:
                # Before it is reaped, so that the number is still its own.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return value


def _answer(process: subprocess.Popen[bytes], asked: bytes) -> Secret:
    assert process.stdin is not None
    assert process.stdout is not None
    until = time.monotonic() + SECONDS
    with suppress(BrokenPipeError):  # it need not read; what is asked fits into a pipe
        process.stdin.write(asked)
        process.stdin.flush()
    with suppress(BrokenPipeError):
        process.stdin.close()
    output = process.stdout.fileno()
    found = b""
    while part := _ready(output, until) and os.read(output, MOST + 3):
        found += part
        if len(found) > MOST + 2:
            raise SourceFailed(Failure.MALFORMED, f"it prints more than {MOST} bytes")
    ended = os.pidfd_open(process.pid)
    try:
        _ready(ended, until)
    finally:
        os.close(ended)
    told = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if told is None or told.si_code != os.CLD_EXITED or told.si_status != 0:
        how = "an exit code" if told and told.si_code == os.CLD_EXITED else "a signal"
        raise SourceFailed(Failure.FAILED, f"it ended by {how} {told.si_status if told else ''}")
    return Secret(found.removesuffix(b"\n").removesuffix(b"\r"))


def _ready(descriptor: int, until: float) -> bool:
    """Wait until something can be read."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
        raise SourceFailed(Failure.TIMEOUT, f"it did not end within {SECONDS:.0f} s")
    return True


def _filled(argument: str, parts: Mapping[str, str | int | None]) -> str:
    """In one go, so that what is filled in is not looked through again."""
    return _PLACE.sub(lambda found: str(parts[found[1]] or ""), argument)
