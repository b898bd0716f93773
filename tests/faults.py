"""Faults for tests: processes found and killed, points armed, and a network that fails.

What is left of a hand is found, and killed, by the folder it belongs to.
`Points` arms the named points of `carpal/fault_points.py`. The network that
fails is in `tests/fault_proxy.py`.
"""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from carpal import hand_mark
from tests.fault_proxy import BOTH, FaultProxy, Way, fault_proxy

__all__ = [
    "BOTH",
    "Action",
    "FaultProxy",
    "Points",
    "Way",
    "fault_proxy",
    "kill_tree",
    "stopped",
    "supervisors",
    "tree",
]

# Processes.


def supervisors(hands: Path) -> list[int]:
    """Pids of the supervisors whose command names a folder below `hands`."""
    mark = os.fsencode(str(hands))
    marked = {pid for pid in _pids() if mark in _read(pid, "cmdline")}
    # What a supervisor forked off carries its command line too.
    return [pid for pid in marked if _parent(pid) not in marked]


def tree(pid: int) -> list[int]:
    """A process and all its descendants, as far as they can be seen now."""
    parents = {child: _parent(child) for child in _pids()}
    found = [pid]
    for member in found:
        found.extend(child for child, parent in parents.items() if parent == member)
    return found


def kill_tree(hands: Path) -> None:
    """Kill every supervisor below `hands`, in a sandbox too, with all that runs under it."""
    mark = os.fsencode(hand_mark.every(hands))
    marked = [pid for pid in _pids() if b"\0" + mark in b"\0" + _read(pid, "environ")]
    for supervisor in (*supervisors(hands), *marked):
        for pid in tree(supervisor):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _parent(pid: int) -> int:
    # The command name is in parentheses and may hold anything; the rest is numbers.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _state(pid: int) -> bytes:
    return b"".join(_read(pid, "stat").rpartition(b")")[2].split()[:1])


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it ended meanwhile


# Points in the code.

Action = Literal["kill", "stop"]
_LOOK = 0.01
"""Seconds between looks at whether a point was reached."""


@dataclass(frozen=True)
class Points:
    """Fault points of processes that run with `environ`."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """What the processes must be started with."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return {"CARPAL_FAULTS": str(self.folder)}

    def arm(self, name: str, action: Action) -> None:
        """The next process to reach the point gets SIGKILL or SIGSTOP, and no other after it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for pid in self.taken(name):
            (self.folder / f"{name}.{pid}").unlink()
        ready = self.folder / f".{name}"
        ready.write_text(action, encoding="utf-8")
        ready.rename(self.folder / name)  # never seen half written

    def disarm(self, name: str) -> bool:
        """Whether the point was still armed; it is not any more."""
        try:
            (self.folder / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def clear(self) -> dict[str, set[int]]:
        """Disarm all, and forget; pids of those that were hit, by what hit them."""
        hit: dict[str, set[int]] = {"kill": set(), "stop": set()}
        while paths := list(self.folder.iterdir()):  # again: one may be taken just now
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    action = path.read_text(encoding="utf-8")
                    path.unlink()
                    pid = path.name.rpartition(".")[2]
                    if pid.isdecimal():
                        hit[action].add(int(pid))
        return hit

    def taken(self, name: str) -> list[int]:
        """Pids of those that reached the point while it was armed."""
        found = self.folder.glob(f"{name}.*")
        return [int(path.name.removeprefix(f"{name}.")) for path in found]

    async def reached(self, name: str, seconds: float) -> int:
        """Until a process reaches the point; its pid. It is dead or stopped, or about to be."""
        try:
            async with asyncio.timeout(seconds):
                while not (pids := self.taken(name)):  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            raise AssertionError(f"nobody reached {name} in {seconds:g} s") from None
        return pids[0]


async def stopped(pid: int, seconds: float) -> None:
    """Until a process stands still."""
    async with asyncio.timeout(seconds):
        while _state(pid) not in (b"T", b""):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(_LOOK)
