"""The server that the checks start themselves, for `--type`: one that may be stopped and killed."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path

from carpal import children, hand_mark
from carpal.children import Child
from carpal.errors import invalid, refuse
from carpal.status import Reason

SANDBOX = "CARPAL_SANDBOX"
"""Whether the hands get a sandbox: one of `SANDBOXES`."""
SANDBOXES = ("auto", "off", "required")
SECRET = "CARPAL_CHECK_SECRET"  # noqa: S105 - a name
"""A variable of the server's environment that no hand may see."""

_START = 120.0
"""Seconds for it to serve: a type's process may take 20 to say what it is."""
_SWEEPS = 20
"""Times at most that what is left is looked for and killed."""
_CGROUPS = Path("/sys/fs/cgroup")


class OwnServer:
    """`carpal hand serve`, on a state folder of its own. Use `open_own`."""

    def __init__(self, folder: Path, type_name: str, workspace: str) -> None:
        self.socket = folder / "socket"
        self.secret = f"secret-{os.urandom(8).hex()}"
        self.killed = False
        """Whether it ever was."""
        self._folder = folder
        self._arguments = [
            *("hand", "serve", "--state-dir", str(folder), "--socket", str(self.socket)),
            *("--type", type_name, "--workspace", workspace),
        ]
        self._child: Child | None = None

    async def start(self) -> None:
        """Start it; it serves when this returns."""
        environ = {**os.environ, SECRET: self.secret}
        log = self._folder / "server.log"
        self._child = await children.start("the server", self._arguments, log=log, environ=environ)
        try:
            async with asyncio.timeout(_START):
                await self._child.ready()
        except TimeoutError:
            raise refuse(
                Reason.UNREACHABLE,
                f"the server of the type did not serve within {_START:g} s",
                action="try one call by `carpal hand call`, which says more",
            ) from None

    async def kill(self) -> None:
        """As a machine that is out of memory does."""
        assert self._child is not None
        self.killed = True
        self._child.process.kill()
        await self._child.process.wait()

    def pause(self) -> None:
        """It stands still, until `go_on`."""
        assert self._child is not None
        self._child.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It goes on."""
        assert self._child is not None
        self._child.process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it in good order, if it runs."""
        if self._child is not None:
            if self._child.is_alive():
                self.go_on()
            await children.end([self._child])

    def remains(self, hand_id: str) -> list[str]:
        """What is left of a hand on this machine: its folder, processes, mounts."""
        folders = [path for path in self._folder.glob("*/hands/*") if path.name == hand_id]
        left = [f"folder {path.name}" for path in folders]
        left += [f"process {pid}" for pid in processes_of(hand_id)]
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        return left + [
            f"mount {line.split()[1]}" for line in mounts.splitlines() if hand_id in line
        ]

    def cgroups_of(self, hand_id: str) -> list[Path]:
        """The control groups of a hand that lives, but those that its server is in too."""
        assert self._child is not None
        shared = _cgroups(self._child.pid)
        found = {group for pid in processes_of(hand_id) for group in _cgroups(pid)}
        return sorted(found - shared)

    def kill_hand(self, hand_id: str) -> int:
        """Kill what supervises a hand; says how many processes that was."""
        pids = processes_of(hand_id)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # with one before it
        return len(pids)


@asynccontextmanager
async def open_own(type_name: str, workspace: str) -> AsyncIterator[OwnServer]:
    """A server that serves; ended, with its folder, when the block ends. HAND_TYPE_NOT_FOUND."""
    word = os.environ.get(SANDBOX) or SANDBOXES[0]
    if word not in SANDBOXES:
        raise invalid(SANDBOX, f"{word!r} is none of {', '.join(SANDBOXES)}")
    kinds = {entry.name: entry for entry in entry_points(group="carpal.hand_types")}
    there = sorted(kinds)
    if type_name not in there:
        raise refuse(
            Reason.HAND_TYPE_NOT_FOUND,
            f"no hand type {type_name!r} is installed here; there is {', '.join(there) or 'none'}",
            action="install what brings it, or give its server's --endpoint",
        )
    folder = _folder()
    own = OwnServer(folder, type_name, workspace)
    try:
        await own.start()
        yield own
    finally:
        await own.stop()
        # A check that kills may leave a hand, and removing its folder ends no container.
        for hand in folder.glob("*/hands/*"):
            if kinds[type_name].value.startswith("hands.builtin."):
                await kinds[type_name].load()().reap(hand.name, hand)
            else:  # code that is to run in no process but its hand's
                _kill_marked(hand_mark.mark(hand))
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    # A socket's address is short, and so is this path; a hand's uid must get through to its own.
    folder = Path(tempfile.mkdtemp(prefix="carpal-check-"))
    folder.chmod(0o711)
    return folder


def processes_of(mark: str) -> list[int]:
    """Processes of this machine that have `mark` among their arguments."""
    return [pid for pid in children.all_pids() if mark in children.arguments_of(pid)]


def _kill_marked(mark: str) -> None:
    """Kill every process that has `mark` in its environment, and what they start meanwhile."""
    for _ in range(_SWEEPS):
        pids = [pid for pid in children.all_pids() if mark in children.environment_of(pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return


def _cgroups(pid: int) -> set[Path]:
    """The folders of a process's control groups, of either version; none once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        name = controllers.removeprefix("name=") or "unified"
        for mount in (_CGROUPS / name, *([] if controllers else [_CGROUPS])):
            if (folder := mount / path.lstrip("/")).is_dir():
                found.add(folder)
    return found
