"""One hand's calls, in order, one at a time, and what its daemon asks of them.

Nothing of it waits but for what its selector says; see `hands/supervisor.py` for what is said.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from hands.inside import crowd, frames, mounting, relay, tree
from hands.inside.call import NEVER, Call, Event, Place
from hands.inside.deadline import Deadline
from hands.inside.entrances import Entrances
from hands.inside.fault_points import point
from hands.inside.frames import Connection
from hands.inside.history import KEPT
from hands.inside.output import compose, counted
from hands.inside.shell import Shell

LEFT = "results"
"""The file in the hand's folder with the results nobody took."""
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
        first: bool = False,
    ) -> None:
        """`way_out` is where a relay listens, if the hand has one.

        `first`: it may be the first process of all that it sees.
        """
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
        self._tell_at = NEVER
        """When the daemon is told that the current call runs."""
        self._watch = crowd.Watch([])
        self._connection: Connection | None = None
        self._ending = ""
        """Why it ends, once it does."""
        self._listener = listener
        self._loop.register(listener, selectors.EVENT_READ, self._accept)
        wake, self._waker = socket.socketpair()
        for end in (wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        if not (first and os.getpid() == 1):
            # As the first process it can be sent from inside only what it has a handler for.
            signal.signal(signal.SIGTERM, self._terminated)
        self._loop.register(wake, selectors.EVENT_READ, lambda: self._woken(wake))
        self._entrances = Entrances(self._place, self._emit)
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
        self._before_the_end()
        tree.kill_below(os.getpid())
        self._place.children.reap()
        self._leave_results()
        if self._connection:
            self._connection.say_last({"event": "ended", "reason": self._ending})

    def _before_the_end(self) -> None:
        """What is below it may still be asked something."""

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
        if self._current:
            due = min(due, self._watch.due, self._tell_at)
        due = min(due, self._entrances.due())
        if self._relaying:
            due = min(due, self._relaying.due())
        return min(_LOOK, due - time.monotonic())

    def _tick(self) -> None:
        now = time.monotonic()
        self._place.children.reap()
        if self._relaying:
            self._relaying.tick(now)
        if self._connection is None or not self._connection.open:
            self._entrances.drop()
        self._entrances.tick(now)
        for call in self._lingering:
            call.tick(now)
        self._lingering = [call for call in self._lingering if call.lingers]
        if self._current:
            if now >= self._watch.due:
                self._note_killed(self._current, self._watch.look(now))
            if now >= self._tell_at:
                self._tell_started(self._current)
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
        if call.restarts:
            self._restart(call)
        else:
            point("supervisor.call.before_started")
            self._make_room(call)
            call.begin()
            point("supervisor.call.started")
            self._tell_at = time.monotonic() + call.untold
            if not call.untold:
                self._tell_started(call)
        self._settle(call)

    def _tell_started(self, call: Call) -> None:
        self._tell_at = NEVER
        self._emit(_started(call))

    def _make_room(self, call: Call) -> None:
        roots = [c.root for c in self._lingering if c.root]
        self._note_killed(call, crowd.make_room(roots))
        self._watch = crowd.Watch(roots)

    def _note_killed(self, call: Call, killed: int) -> None:
        if killed:
            jobs = counted(killed, "background process")
            call.remark = f"{jobs} killed: they left no room for this call"

    def _settle(self, call: Call) -> None:
        """Make way for the next call once this one has its result."""
        if call.result is None:
            return
        if self._current is call:
            self._current, self._tell_at = None, NEVER
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
        if frames.is_from_inside(accepted):
            accepted.close()  # only the daemon gives orders, and says that a brain was heard
            return
        if self._connection:
            self._connection.close()  # the newer daemon is the one that lives
        self._forget_mounting()
        self._entrances.drop()
        self._connection = Connection(accepted, self._loop, self._obey)
        hello = {
            "pid": os.getpid(),
            "start": _own_start(),
            "calls": list(self._calls),
            "quiet": self._deadline.quiet,
            "answers": ["ping", "enter", "view"],
        }
        self._emit({"event": "hello", **hello})
        for call in self._calls.values():
            self._repeat(call)

    def _forget_mounting(self) -> None:
        """What a daemon asked for itself ends with its connection: no other waits for it."""
        for call in [each for each in self._calls.values() if each.tool in mounting.TOOLS]:
            self._cancel(call.call_id, 0.0)
            del self._calls[call.call_id]

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
            case "enter":
                self._entrances.enter(message)
            case "leave":
                self._entrances.leave(message["tunnel_id"])
            case "ping":
                self._emit({"event": "pong"})
            case "end":
                self._ending = "it was told to"

    def _take(self, message: Mapping[str, Any]) -> None:
        call_id = message["call_id"]
        call = self._call(call_id, message["tool"], message["input"], message["limit"])
        if call_id not in self._seen:
            self._seen.add(call_id)
            self._calls[call_id] = call
            point("supervisor.call.taken")
        elif call_id in self._calls:
            self._repeat(self._calls[call_id])
        else:
            call.refuse("interrupted", "this call came before; what it gave is no longer kept")
            self._emit(_result(call))

    def _call(self, call_id: str, tool: str, given: Mapping[str, Any], limit: float) -> Call:
        return Call(self._place, call_id, tool, given, limit)

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


def _started(call: Call) -> Event:
    runner = call.runner
    pid, start = (runner.pid, runner.start) if runner else (0, 0)
    return {"event": "started", "call_id": call.call_id, "pid": pid, "start": start}


def _result(call: Call) -> Event:
    return {"event": "result", "call_id": call.call_id, **(call.result or {})}


def _own_start() -> int:
    return tree.start_time(os.getpid())
