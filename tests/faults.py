"""Faults for tests: what is left of a hand is found, and killed, by the folder it belongs to."""

import contextlib
import os
import signal
from pathlib import Path


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
    """Kill every supervisor below `hands`, with all that runs under it."""
    for supervisor in supervisors(hands):
        for pid in tree(supervisor):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _parent(pid: int) -> int:
    # The command name is in parentheses and may hold anything; the rest is numbers.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it ended meanwhile
