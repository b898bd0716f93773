"""Runs one hand's calls, inside it, and outlives the daemon that started it.

`python3 -I -S /path/to/hands/supervisor.py --folder F --workspace W --hand-id H
--deadline S`, standard library only. It binds `F/socket`, says one JSON line
(`pid`, `start`) on stdout and goes on in the background, in a session of its
own; with `--stay` as the very process that was started, for whoever starts it
as the first one of a sandbox or a container. The daemon talks to it in frames:
four bytes of length, big endian, then one JSON object.

From the daemon: `run {call_id, tool, input, limit}`, `cancel {call_id, grace}`,
`forget {call_id}` (its result is in the journal), `contact` (a brain with a
live lease was heard), `ping`, `end`. To the daemon: first `hello {pid, start,
calls, quiet, answers}`, then everything it holds anew; `started {call_id, pid,
start}`, `output` (the beginning), `spooled {call_id, end}` (there is output up
to there, in the call's spool or left out), `result`, `pong`. A call_id is run
once, ever. Without contact for longer than the deadline, on a clock that counts
sleep, it kills its whole tree and ends.
"""

import argparse
import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":
    # Under -I nothing but the standard library is found; our own files follow it.
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from hands.inside import crowd, filtered, relay, tree
from hands.inside.call import NEVER, START_LIMIT, Call, Event, Place
from hands.inside.deadline import Deadline
from hands.inside.fault_points import FOLDER, point
from hands.inside.history import KEPT
from hands.inside.output import compose, counted
from hands.inside.shell import Shell

LEFT = "results"
"""The file in the hand's folder with the results nobody took."""
_LENGTH = struct.Struct(">I")
_LOOK = 2.0
"""Seconds between looks at the deadline: the loop's own clock stands still while asleep."""


class Supervisor:
    """One hand: a socket to the daemon, and calls that run in order, one at a time."""

    def __init__(
        self,
        listener: socket.socket,
        folder: Path,
        workspace: Path,
        *,
        deadline: float,
        start_limit: float,
        keep: bool = False,
        way_out: socket.socket | None = None,
    ) -> None:
        """`way_out` is where a relay listens, if the hand has one."""
        shell = Shell(workspace, folder, dict(os.environ))
        kept = folder / KEPT if keep else None
        self._place = Place(workspace, shell, folder / "spool", start_limit, kept)
        self._loop = self._place.loop
        self._folder = folder
        self._deadline = Deadline(deadline)
        self._seen: set[str] = set()
        self._calls: dict[str, Call] = {}
        """Waiting, running, or finished and not forgotten; in order."""
        self._lingering: list[Call] = []
        self._current: Call | None = None
        self._connection: _Connection | None = None
        self._ending = ""
        """Why it ends, once it does."""
        self._listener = listener
        self._loop.register(listener, selectors.EVENT_READ, self._accept)
        wake, self._waker = socket.socketpair()
        for end in (wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, self._terminated)
        self._loop.register(wake, selectors.EVENT_READ, lambda: self._woken(wake))
        self._relaying = relay.Relaying(self._place.children, way_out, folder) if way_out else None

    def run(self) -> None:
        """Serve until told to end, or orphaned; then kill everything below."""
        self._tick()
        while not self._ending:
            ready = self._loop.select(max(0.0, self._pause()))
            # Before what came is obeyed: contact after the deadline is no contact.
            if self._orphaned():
                break
            for key, _ in ready:
                current = self._loop.get_map().get(key.fd)
                # What was ready may have been closed by what came before it.
                if current is not None and current.data is key.data:
                    for event in key.data() or ():
                        self._emit(event)
            self._tick()
        if self._current:
            self._current.freeze()
        tree.kill_below(os.getpid())
        self._place.children.reap()
        self._leave_results()
        if self._connection:
            self._connection.say_last({"event": "ended", "reason": self._ending})

    def _leave_results(self) -> None:
        """Write down what nobody took: its daemon is gone, or stands still, and may come back."""
        events = [_result(call) for call in self._calls.values() if call.result]
        if events:
            written = self._folder / f"{LEFT}.new"
            # A full disk, or what a command put there, keeps it from ending no more than that.
            with contextlib.suppress(OSError):
                with written.open("x", encoding="utf-8", errors="surrogatepass") as file:
                    json.dump(events, file)
                written.rename(self._folder / LEFT)

    # Its time.

    def _pause(self) -> float:
        calls = [*self._lingering, *([self._current] if self._current else [])]
        due = min((call.due() for call in calls), default=NEVER)
        if self._relaying:
            due = min(due, self._relaying.due())
        return min(_LOOK, due - time.monotonic())

    def _tick(self) -> None:
        now = time.monotonic()
        self._place.children.reap()
        if self._relaying:
            self._relaying.tick(now)
        for call in self._lingering:
            call.tick(now)
        self._lingering = [call for call in self._lingering if call.lingers]
        if self._current:
            self._current.tick(now)
            self._settle(self._current)
        while self._current is None and (waiting := self._next()):
            self._start(waiting)
        self._orphaned()

    def _orphaned(self) -> bool:
        if self._deadline.over and not self._ending:
            self._ending = (
                f"it heard of no brain for {self._deadline.seconds:g} s, its orphan deadline"
            )
        return self._deadline.over

    def _next(self) -> Call | None:
        return next((c for c in self._calls.values() if c.result is None), None)

    def _start(self, call: Call) -> None:
        self._current = call
        if call.given.get("restart"):
            self._restart(call)
        else:
            point("supervisor.call.before_started")
            self._make_room(call)
            call.begin()
            point("supervisor.call.started")
            self._emit(_started(call))
        self._settle(call)

    def _make_room(self, call: Call) -> None:
        if killed := crowd.make_room([c.root for c in self._lingering if c.root]):
            jobs = counted(killed, "background process")
            call.remark = f"{jobs} killed: they left no room for this call"

    def _settle(self, call: Call) -> None:
        """Make way for the next call once this one has its result."""
        if call.result is None:
            return
        if self._current is call:
            self._current = None
        others = [c.root.pid for c in self._lingering if c.root]
        if others:
            call.result["background"] += len(tree.descendants(*others))
        if call.lingers:
            self._lingering.append(call)
        for event in call.unsaid():  # what it wrote up to its death
            self._emit(event)
        point("supervisor.result.kept")
        self._emit(_result(call))
        point("supervisor.result.told")

    def _restart(self, call: Call) -> None:
        for old in self._lingering:
            if old.root:
                tree.kill_tree(old.root.pid, old.root.start)
        self._place.shell.reset()
        call.answer(compose("", f"restarted; cwd is {self._place.shell.cwd}"))

    # The daemon.

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        if self._connection:
            self._connection.close()  # the newer daemon is the one that lives
        self._connection = _Connection(accepted, self._loop, self._obey)
        hello = {
            "pid": os.getpid(),
            "start": _own_start(),
            "calls": list(self._calls),
            "quiet": self._deadline.quiet,
            "answers": ["ping"],
        }
        self._emit({"event": "hello", **hello})
        for call in self._calls.values():
            self._repeat(call)

    def _repeat(self, call: Call) -> None:
        if call.runner:
            self._emit(_started(call))
        for event in call.unsaid(anew=True):
            self._emit(event)
        if call.result:
            self._emit(_result(call))

    def _emit(self, event: Event) -> None:
        if self._connection:
            self._connection.say(event)

    def _obey(self, message: Mapping[str, Any]) -> None:
        match message["op"]:
            case "run":
                self._take(message)
            case "cancel":
                self._cancel(message["call_id"], message["grace"])
            case "forget":
                call = self._calls.get(message["call_id"])
                if call and call.result:
                    del self._calls[message["call_id"]]
                    point("supervisor.call.forgotten")
            case "contact":
                self._deadline.contact()
            case "ping":
                self._emit({"event": "pong"})
            case "end":
                self._ending = "it was told to"

    def _take(self, message: Mapping[str, Any]) -> None:
        call_id = message["call_id"]
        call = Call(self._place, call_id, message["tool"], message["input"], message["limit"])
        if call_id not in self._seen:
            self._seen.add(call_id)
            self._calls[call_id] = call
            point("supervisor.call.taken")
        elif call_id in self._calls:
            self._repeat(self._calls[call_id])
        else:
            call.refuse("interrupted", "this call came before; what it gave is no longer kept")
            self._emit(_result(call))

    def _cancel(self, call_id: str, grace: float) -> None:
        self._seen.add(call_id)  # should it come later, it does not run
        call = self._calls.get(call_id)
        if call is None or call.result:
            return
        if call is self._current:
            call.cancel(grace)
        else:
            call.refuse("cancelled", "cancelled before it started")
            self._settle(call)

    # Signals.

    def _woken(self, wake: socket.socket) -> None:
        try:
            while wake.recv(512):
                pass
        except BlockingIOError:
            return

    def _terminated(self, _number: int, _frame: FrameType | None) -> None:
        self._ending = "its supervisor got SIGTERM"


class _Connection:
    """Frames to and from the one daemon."""

    def __init__(
        self,
        connected: socket.socket,
        loop: selectors.BaseSelector,
        obey: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._socket = connected
        self._loop = loop
        self._obey = obey
        self._in = bytearray()
        self._out = bytearray()
        self._open = True
        connected.setblocking(False)
        loop.register(connected, selectors.EVENT_READ, self._ready)

    def say(self, event: Event) -> None:
        """Send, now or when the daemon reads; dropped when it is gone, for it will ask anew."""
        if self._open:
            data = json.dumps(event).encode()
            self._out += _LENGTH.pack(len(data)) + data
            self._flush()

    def say_last(self, event: Event) -> None:
        """Send, waiting for the daemon a little if need be; the stream's end is the process's."""
        self.say(event)
        if self._open:
            self._socket.settimeout(1.0)
            with contextlib.suppress(OSError):  # it sees the end of the stream all the same
                self._socket.sendall(self._out)

    def close(self) -> None:
        """Drop the daemon."""
        if self._open:
            self._open = False
            self._loop.unregister(self._socket)
            self._socket.close()

    def _ready(self) -> None:
        self._flush()
        try:
            data = self._socket.recv(256 * 1024) if self._open else b""
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.close()
        self._in += data
        while len(self._in) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._in)
            if len(self._in) < _LENGTH.size + size:
                break
            frame = bytes(self._in[_LENGTH.size : _LENGTH.size + size])
            del self._in[: _LENGTH.size + size]
            self._obey(json.loads(frame))

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except ConnectionError:
            self.close()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._loop.modify(self._socket, wanted, self._ready)


def _started(call: Call) -> Event:
    runner = call.runner
    pid, start = (runner.pid, runner.start) if runner else (0, 0)
    return {"event": "started", "call_id": call.call_id, "pid": pid, "start": start}


def _result(call: Call) -> Event:
    return {"event": "result", "call_id": call.call_id, **(call.result or {})}


def _own_start() -> int:
    return tree.start_time(os.getpid())


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
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--hand-id", required=True)  # for people who look at ps
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--start-limit", type=float, default=START_LIMIT)
    parser.add_argument("--keep-files", action="store_true")  # contents of what calls change
    parser.add_argument("--stay", action="store_true")  # no fork: the sandbox ends with it
    # It has a network of its own, and no way out of it but the daemon's forwarder.
    parser.add_argument("--egress", action="store_true")
    parser.add_argument("--sealed", action="store_true")  # what it runs is of its own user
    parser.add_argument("--filter", type=Path)  # of system calls, for it and all that it runs
    given = parser.parse_args()
    os.environ.pop(FOLDER, None)  # what runs in the hand is not told of it
    os.umask(0o022)
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(name, signal.SIG_IGN)
    listener = _bind(given.folder)
    way_out = relay.listen() if given.egress else None
    point("supervisor.hand.bound")
    start = _stay if given.stay else _go_on_in_the_background
    start(given.folder, listener, *([way_out.fileno()] if way_out else []))
    tree.become_subreaper()
    if given.sealed:
        tree.seal()
    if given.filter:
        filtered.apply(given.filter)
    os.chdir("/")
    Supervisor(
        listener,
        given.folder,
        given.workspace,
        deadline=given.deadline,
        start_limit=given.start_limit,
        keep=given.keep_files,
        way_out=way_out,
    ).run()
    (given.folder / "socket").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
