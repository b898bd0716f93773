"""Starts a hand's first process in its sandbox and its control groups, and leaves it on its own.

A shell joins the groups, starts bubblewrap in the background and ends: so the
sandbox is nobody's child, and ends with neither the daemon nor a thread of it.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from hands.contract import ProvisionFailed
from hands.isolation import bwrap, seccomp

READY_LIMIT = 10.0
"""Seconds for a supervisor to be ready; it takes a tenth of one."""
_SAID_MAX = 64 * 1024
_SCRIPT = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1" || exit 71; shift; n=$((n-1)); done; "$@" &'
)


async def start(
    box: bwrap.Sandbox, command: Sequence[str], joins: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Start `command` in `box`; it said that it is ready when this returns.

    `joins` are the files of groups to join, `environ` what the sandbox itself
    has in its environment, by which it is found. Raises ProvisionFailed.
    """
    said, errors = _Pipe(), _Pipe()
    try:
        with files(box) as open_files:
            line = bwrap.arguments(box, command, open_files["options"])
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _SCRIPT, "sh", str(len(joins)), *joins, *line),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said.write,
                stderr=errors.write,
                env=dict(environ),
                pass_fds=tuple(open_files.values()),
                start_new_session=True,
            )
        said.close_write()
        errors.close_write()
        await process.wait()
        try:
            async with asyncio.timeout(READY_LIMIT):
                ready = await said.line()
                why = "" if ready else await errors.line()
        except TimeoutError:
            message = f"the supervisor was not ready after {READY_LIMIT:g} s"
            raise ProvisionFailed(message) from None
    finally:
        said.close()
        errors.close()
    if not _is_ready(ready):
        raise ProvisionFailed(f"the supervisor did not start: {why or 'it said nothing'}")


def _is_ready(line: str) -> bool:
    try:
        return "pid" in json.loads(line or "{}")
    except ValueError:
        return False


@contextlib.contextmanager
def files(box: bwrap.Sandbox) -> Iterator[dict[str, int]]:
    """What bubblewrap takes by descriptor, open: `options`, and what these name."""
    uid = os.geteuid() if box.uid is None else box.uid
    gid = os.getegid() if box.gid is None else box.gid
    passwd, group = bwrap.passwd(uid, gid)
    filtered = seccomp.program(namespaces=box.namespaces)
    texts = {"seccomp": filtered, "passwd": passwd.encode(), "group": group.encode()}
    with contextlib.ExitStack() as stack:
        opened = {name: stack.enter_context(_holding(name, text)) for name, text in texts.items()}
        options = bwrap.options(box, **opened)
        yield {**opened, "options": stack.enter_context(_holding("options", options))}


@contextlib.contextmanager
def _holding(name: str, text: bytes) -> Iterator[int]:
    """A descriptor of a file in memory, at its beginning."""
    with os.fdopen(os.memfd_create(name), "wb") as file:
        file.write(text)
        file.seek(0)
        yield file.fileno()


class _Pipe:
    """What a process says, until it is ready: the sandbox holds the other end for ever."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read, False)

    async def line(self) -> str:
        """All of it up to its last line's end, or to its own."""
        loop = asyncio.get_running_loop()
        data = b""
        while not data.endswith(b"\n") and len(data) < _SAID_MAX:
            there = asyncio.Event()
            loop.add_reader(self._read, there.set)
            try:
                await there.wait()
            finally:
                loop.remove_reader(self._read)
            more = os.read(self._read, _SAID_MAX)
            if not more:
                break
            data += more
        return data.decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close_write(self) -> None:
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def close(self) -> None:
        self.close_write()
        os.close(self._read)
