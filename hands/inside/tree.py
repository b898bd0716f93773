"""Processes as /proc shows them: who descends from whom, and killing every one of them.

A process group misses what called setsid, and one snapshot misses what forked
meanwhile. So: stop every descendant until no new one appears, then kill, and
repeat until none is left. This finds all of them only below a subreaper, for
there an orphan stays a descendant.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_LIMIT = 5.0
"""Seconds after which a sweep gives up, for instance on a process stuck in the kernel."""
_ENVIRONMENT_MAX = 256 * 1024
"""Bytes of a process's environment that are read: it may say that its environment is all memory."""
_STAT_MAX = 4096
"""Bytes of `stat`, which is one line of numbers and a short name."""
_PROC = "/proc"
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """One live process. `start` (clock ticks since boot) tells it from a later one of its pid."""

    pid: int
    parent: int
    start: int


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def seal() -> None:
    """Keep this process's memory from others of its user; what it forks, until that is unsealed."""
    _prctl(_PR_SET_DUMPABLE, 0)


def unseal() -> None:
    """Be as processes are."""
    _prctl(_PR_SET_DUMPABLE, 1)


def signal_on_parent_death(number: int) -> None:
    """Ask for a signal when the parent ends; the caller must check the parent still lives."""
    _prctl(_PR_SET_PDEATHSIG, number)


def close_all_but(*keep: int) -> None:
    """Close every descriptor but the standard three and these."""
    numbers = [int(name) for name in os.listdir(f"{_PROC}/self/fd")]  # noqa: PTH208
    for number in numbers:
        if number > 2 and number not in keep:
            with contextlib.suppress(OSError):  # the listing's own is closed already
                os.close(number)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def find(pid: int) -> Process | None:
    """The live process of that pid; a zombie counts as gone."""
    try:
        handle = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        text = os.read(handle, _STAT_MAX)
    except ProcessLookupError:
        return None
    finally:
        os.close(handle)
    # The name, in parentheses, may hold anything, parentheses too.
    fields = text[text.rindex(b")") + 2 :].split()
    # A leader that ended while its threads go on shows as a zombie too.
    if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1:
        return None
    return Process(pid, int(fields[1]), int(fields[19]))


def start_time(pid: int) -> int:
    """Of a live process, in clock ticks since boot; 0 when it is gone."""
    process = find(pid)
    return process.start if process else 0


def alive(pid: int, start: int) -> bool:
    """Whether that very process still lives."""
    return start != 0 and start_time(pid) == start


def everyone() -> dict[int, Process]:
    """Every live process, by pid."""
    # Not by Path: this runs while a fork bomb races it.
    found = (find(int(name)) for name in os.listdir(_PROC) if name.isdigit())  # noqa: PTH208
    return {process.pid: process for process in found if process}


def descendants(*roots: int) -> list[Process]:
    """Every live process below `roots`, which are not among them."""
    children: dict[int, list[Process]] = {}
    for process in everyone().values():
        children.setdefault(process.parent, []).append(process)
    below: list[Process] = []
    waiting = list(roots)
    while waiting:
        for child in children.pop(waiting.pop(), ()):
            below.append(child)
            waiting.append(child.pid)
    return below


def send(process: Process, number: int) -> bool:
    """Signal that very process, never a later one of its pid; False when it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process.pid, process.start):
            return False
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def kill_below(root: int) -> int:
    """Kill every descendant of `root`, which must be a subreaper; says how many there were."""
    return _kill_all(lambda: descendants(root))


def kill_tree(pid: int, start: int) -> int:
    """Kill that process, if it lives, and every descendant; says how many there were."""
    root = find(pid)
    if root is None or root.start != start:
        return 0
    killed = kill_below(pid)
    return killed + send(root, signal.SIGKILL)


def kill_namespace(pid: int, start: int) -> bool:
    """Kill that process if it is the first of a namespace below ours, and with it all in there.

    At one stroke, whatever they are and hide. False when it is no such process, or
    when it is not over after a bounded wait.
    """
    process = find(pid)
    if process is None or process.start != start or not _is_first(pid):
        return False
    send(process, signal.SIGKILL)
    ends = time.monotonic() + _SWEEP_LIMIT
    # The kernel ends it as the last of its namespace.
    while (living := alive(pid, start)) and time.monotonic() < ends:
        time.sleep(0.002)
    return not living


def _is_first(pid: int) -> bool:
    try:
        with open(f"{_PROC}/{pid}/status", "rb") as file:  # noqa: PTH123 - as `everyone`
            line = next((line for line in file if line.startswith(b"NSpid:")), b"")
    except (FileNotFoundError, ProcessLookupError):
        return False
    pids = line.split()[1:]
    return len(pids) > 1 and pids[-1] == b"1"


def kill_marked(marker: str, theirs: Callable[[int], bool] = lambda _uid: False) -> int:
    """Kill every process started with `marker` (`NAME=value`) in its environment, and all below.

    For what outlived the supervisor whose descendant it was. A process may
    have hidden its environment and left its parent: this is the last resort, not the rule.
    `theirs` says of a user id that its processes are others', not to be looked into.
    """
    return _kill_all(lambda: _marked(os.fsencode(marker), theirs))


def _marked(marker: bytes, theirs: Callable[[int], bool] = lambda _uid: False) -> Iterable[Process]:
    others = (process for process in everyone().values() if process.pid != os.getpid())
    marked = [process for process in others if _carries(process.pid, marker, theirs)]
    # While their root lives, those that cleared their environment are still found by it.
    below = descendants(*(process.pid for process in marked))
    return {*marked, *(process for process in below if process.pid != os.getpid())}


def _carries(pid: int, marker: bytes, theirs: Callable[[int], bool]) -> bool:
    """Whether it has `marker` in its environment, or in the beginning of a huge one."""
    folder = f"{_PROC}/{pid}"
    try:
        if theirs(os.stat(folder).st_uid):  # noqa: PTH116 - as `everyone`
            return False
        with open(f"{folder}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - as `everyone`
            environment = b"\0"
            while len(environment) < _ENVIRONMENT_MAX and (more := file.read(_ENVIRONMENT_MAX)):
                environment += more
    except OSError:
        return False  # gone, or another user's, which cannot be ours
    # Not split: it may be nothing but separators.
    return b"\0" + marker + b"\0" in environment + b"\0"


def _kill_all(those: Callable[[], Iterable[Process]]) -> int:
    """Stop what `those` finds until it finds nothing new, kill it, and again until none is left."""
    # By pid and start alone: a process's parent may change while it dies.
    killed: dict[tuple[int, int], Process] = {}
    ends = time.monotonic() + _SWEEP_LIMIT
    while time.monotonic() < ends:
        doomed: dict[tuple[int, int], Process] = {}
        while fresh := [p for p in those() if (p.pid, p.start) not in doomed | killed]:
            for process in fresh:
                send(process, signal.SIGSTOP)
                doomed[process.pid, process.start] = process
            if time.monotonic() > ends:
                break
        if not doomed:
            break
        for process in doomed.values():
            send(process, signal.SIGKILL)
        killed |= doomed
    dying = list(killed)
    while time.monotonic() < ends and (dying := [one for one in dying if alive(*one)]):
        time.sleep(0.002)  # the kernel ends them; nothing announces it for those not our children
    return len(killed)
