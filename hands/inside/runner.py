"""The process at the root of one call's tree: forked off the supervisor, a subreaper of its own.

So whatever a call starts, however it detaches, stays below that call's
runner, and a call can be killed whole without touching what an earlier one
left in the background. The runner lives as long as anything below it, reaps
it, and takes it along should the supervisor die.
"""

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple, NoReturn

from hands.inside import tree
from hands.inside.fault_points import point

END_LIMIT = 2.0
"""Seconds that a runner may take to end once it was killed."""
_SPAWN_LIMIT = 3.0
"""Seconds to try to start a program while there is no room for a process."""
Report = dict[str, object]
Body = Callable[[Callable[[Report], None]], None]
"""What a runner does; it is given a way to report, one JSON object a line."""

_DEFAULTS = [
    number
    for number in signal.valid_signals()
    if number not in (signal.SIGKILL, signal.SIGSTOP) and number < signal.SIGRTMIN
]
"""Handlers end at exec, but what our parents ignored would stay ignored: SIGPIPE, for one."""


class Runner(NamedTuple):
    """A started runner; its report pipe ends when it does."""

    pid: int
    start: int
    report: int


class Children:
    """Reaps this process's children, and remembers how the runners among them ended."""

    def __init__(self) -> None:
        self._runners: set[int] = set()
        self._ended: dict[int, int] = {}

    def fork(self, body: Body, *keep: int) -> Runner:
        """Start a runner; see `fork`."""
        started = fork(body, *keep)
        self._runners.add(started.pid)
        return started

    def reap(self) -> None:
        """Take every child that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._runners:
                self._ended[pid] = status

    def ended(self, pid: int) -> int | None:
        """How a runner ended: its exit code, or a signal's number below zero; None before.

        Once it was told, it is forgotten.
        """
        if pid not in self._ended:
            return None
        self._runners.discard(pid)
        return os.waitstatus_to_exitcode(self._ended.pop(pid))

    def kill_strays(self) -> int:
        """Kill children that are no runners, and all below: a killed runner left them."""
        here = os.getpid()
        strays = [
            process
            for process in tree.descendants(here)
            if process.parent == here and process.pid not in self._runners
        ]
        return sum(tree.kill_tree(process.pid, process.start) for process in strays)


def fork(body: Body, *keep: int) -> Runner:
    """Start a runner that has no descriptor of the supervisor's but `keep`. Raises OSError."""
    receive, send = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(receive)
        os.close(send)
        raise
    if pid == 0:
        _child(parent, body, send, *keep)
    os.close(send)
    os.set_blocking(receive, False)
    return Runner(pid, tree.start_time(pid), receive)


def room_for(processes: int) -> bool:
    """Whether so many more may live at once just now: they do, for a moment."""
    receive, send = os.pipe2(os.O_CLOEXEC)
    started: list[int] = []
    try:
        while len(started) < processes:
            pid = os.fork()
            if pid == 0:
                _wait_for_the_end(receive, send)
            started.append(pid)
    except OSError:
        return False
    finally:
        os.close(send)
        os.close(receive)
        for pid in started:
            os.waitpid(pid, 0)
    return True


def _wait_for_the_end(receive: int, send: int) -> NoReturn:
    try:
        os.close(send)
        os.read(receive, 1)
    finally:
        os._exit(0)


def _child(parent: int, body: Body, send: int, *keep: int) -> NoReturn:
    code = 70  # EX_SOFTWARE: the body raised
    try:
        _detach(parent, {send, *keep})
        body(lambda report: _write(send, report))
        code = 0
    finally:
        os._exit(code)


def _detach(parent: int, keep: set[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    tree.close_all_but(*keep)
    tree.become_subreaper()
    tree.unseal()
    _be_killed_first()

    def orphaned(_number: int, _frame: FrameType | None) -> None:
        # Anyone may send this signal; it counts once the supervisor is gone.
        if os.getppid() != parent:
            tree.kill_below(os.getpid())
            os._exit(1)

    signal.signal(signal.SIGTERM, orphaned)
    tree.signal_on_parent_death(signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _be_killed_first() -> None:
    """When memory runs out the kernel is to take what a call runs, not the supervisor."""
    with contextlib.suppress(OSError):
        handle = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(handle, b"500")
        os.close(handle)


def _write(send: int, report: Report) -> None:
    data = json.dumps(report).encode() + b"\n"
    while data:
        data = data[os.write(send, data) :]


def command(argv: list[str], environment: dict[bytes, bytes], cwd: str, output: int) -> Body:
    """A body that runs a program with `output` for what it says, and reports how it ended."""

    def body(report: Callable[[Report], None]) -> None:
        point("supervisor.runner.forked")
        try:
            os.chdir(cwd)
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            actions = [
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ]
            main = _spawn(argv, environment, actions)
        except OSError as error:
            report({"failed": f"cannot start {argv[0]}: {(error.strerror or 'failed').lower()}"})
            return
        os.close(output)
        report({"main": main})
        _reap(main, report)

    return body


def _spawn(
    argv: list[str], environment: dict[bytes, bytes], actions: list[tuple[int, int, int]]
) -> int:
    """Start it. A bomb beside it may have the room just now, until the supervisor sees that."""
    ends = time.monotonic() + _SPAWN_LIMIT
    while True:
        try:
            return os.posix_spawnp(
                argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=_DEFAULTS
            )
        except BlockingIOError:
            if time.monotonic() > ends:
                raise
        time.sleep(0.02)


def _reap(main: int, report: Callable[[Report], None]) -> None:
    """Wait for all that ends up below; report when `main` ended, and whether more is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if pid == main:
            report({"exit": os.waitstatus_to_exitcode(status), "more": _more()})


def _more() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return False
    return True


def function(tool: Callable[[], str], cpu_seconds: int) -> Body:
    """A body that computes a tool's answer and reports it; too much CPU ends it by SIGXCPU."""
    from hands.inside.beneath import ToolError

    def body(report: Callable[[Report], None]) -> None:
        point("supervisor.runner.forked")
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        try:
            report({"content": tool()})
        except (ToolError, RecursionError, MemoryError) as error:
            report({"failed": str(error) or type(error).__name__})

    return body
