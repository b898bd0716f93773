"""A supervisor's start: its options, its socket, what it lets go of, and what it becomes.

Apart from the program itself, which Python would read anew each time: what is imported is kept.
"""

import gc
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from hands.inside import relay, tree
from hands.inside.call import START_LIMIT
from hands.inside.fault_points import FOLDER, point
from hands.inside.supervising import Supervisor

_NEEDED = {"--folder", "--workspace", "--hand-id", "--deadline"}
_OPTIONS = {
    **dict.fromkeys(_NEEDED, True),  # the id is for people who look at ps
    "--start-limit": True,
    "--keep-files": False,  # contents of what calls change
    "--stay": False,  # no fork: the sandbox ends with it
    # It has a network of its own, and no way out of it but the daemon's forwarder.
    "--egress": False,
    "--sealed": False,  # what it runs is of its own user
    "--filter": True,  # of system calls, for it and all that it runs
    "--host": True,  # what runs its tools: a program's arguments, as JSON
}
"""Whether each has a value."""


def _bind(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A socket's address holds 107 bytes; through a descriptor any path is short.
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    listener.bind(f"/proc/self/fd/{handle}/socket")
    os.close(handle)
    return listener


def _go_on_in_the_background(folder: Path, listener: socket.socket, *keep: int) -> None:
    """Fork; the parent says ready and ends, the child has nothing of its terminal or pipes."""
    receive, send = os.pipe()
    if child := os.fork():
        os.close(send)
        os.read(receive, 1)  # the child is in its own session now, and listens
        _say_ready(child)
        os._exit(0)
    os.setsid()
    _listen(listener)
    _leave_pipes(folder, listener.fileno(), *keep)


def _stay(folder: Path, listener: socket.socket, *keep: int) -> None:
    """Say ready, and let go of the starter's pipes."""
    _listen(listener)
    _say_ready(os.getpid())
    _leave_pipes(folder, listener.fileno(), *keep)


def _listen(listener: socket.socket) -> None:
    """In the process that stays: the kernel tells the daemon whose socket it is by who did this."""
    listener.listen(4)
    listener.setblocking(False)


def _say_ready(pid: int) -> None:
    sys.stdout.write(json.dumps({"pid": pid, "start": tree.start_time(pid)}) + "\n")
    sys.stdout.flush()


def _leave_pipes(folder: Path, *keep: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(source, target)
    tree.close_all_but(*keep)  # whatever the daemon let slip too


def main() -> None:
    """Bind, go on in the background, serve, and leave no process behind."""
    given = _given(sys.argv[1:])
    folder = Path(given["--folder"])
    os.environ.pop(FOLDER, None)  # what runs in the hand is not told of it
    os.umask(0o022)
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(name, signal.SIG_IGN)
    listener = _bind(folder)
    way_out = relay.listen() if "--egress" in given else None
    point("supervisor.hand.bound")
    start = _stay if "--stay" in given else _go_on_in_the_background
    start(folder, listener, *([way_out.fileno()] if way_out else []))
    tree.become_subreaper()
    if "--sealed" in given:
        tree.seal()
    if "--filter" in given:
        from hands.inside import filtered

        filtered.apply(Path(given["--filter"]))
    os.chdir("/")
    gc.freeze()  # what is loaded stays: a call's process shares its pages, and copies none of them
    gc.enable()
    supervisor: Callable[..., Supervisor] = Supervisor
    if "--host" in given:
        from hands.inside.hosting import hosted

        supervisor = hosted(json.loads(given["--host"]))
    supervisor(
        listener,
        folder,
        Path(given["--workspace"]),
        deadline=float(given["--deadline"]),
        start_limit=float(given.get("--start-limit", START_LIMIT)),
        keep="--keep-files" in given,
        way_out=way_out,
        first="--stay" in given,
    ).run()
    (folder / "socket").unlink(missing_ok=True)


def _given(arguments: Sequence[str]) -> dict[str, str]:
    """The options, by name. Not by argparse: loading it takes a quarter as long as all the rest."""
    given: dict[str, str] = {}
    left = deque(arguments)
    while left:
        name = left.popleft()
        if name not in _OPTIONS:
            raise SystemExit(f"{name} is no option of a supervisor's")
        given[name] = left.popleft() if _OPTIONS[name] else ""
    if missing := _NEEDED - given.keys():
        raise SystemExit(f"a supervisor needs {', '.join(sorted(missing))}")
    return given
