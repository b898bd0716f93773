"""One call from its start to its result: a runner, its output, its limits.

Nothing here blocks but the sweep that kills a tree; the supervisor's loop says
when there is something to read, what time it is, and that a process ended.
"""

import base64
import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hands.inside import mounting, runner, spool, tree
from hands.inside.beneath import Workspace
from hands.inside.history import History
from hands.inside.output import Capture, compose, counted
from hands.inside.shell import Shell

Event = dict[str, Any]
_READ = 64 * 1024
_IDLE = 0.15
"""Seconds of silence after which a pipe held open by background processes is left alone."""
_DRAIN = 0.8
"""Seconds after the main process ended when the call ends even if they go on writing."""
_FLOOD = 1024**3
"""Bytes of output after which a call is killed: nobody will read them."""
_THROTTLE = 0.01
"""Seconds between reads of late output, which is thrown away: a flood of it costs little."""
TIME_LIMIT = 120.0
"""Seconds a call may take when nobody says otherwise."""
START_LIMIT = 20.0
"""Seconds for the process at a call's root to say that it started the command."""
_CPU_SECONDS = 30
"""For a file tool: a pattern that backtracks for ever ends here."""
NEVER = float("inf")

_QUIET = frozenset({"read", "glob", "grep", *mounting.TOOLS})
"""Tools that change no file, or none that the history is to tell of."""


class Place:
    """What every call of a hand shares."""

    def __init__(
        self,
        workspace: Path,
        shell: Shell,
        spools: Path,
        start_limit: float,
        keep: Path | None = None,
    ) -> None:
        """`spools` is where each call has its spool, a folder by its id; `keep` is `History`'s."""
        self.workspace = workspace
        self.folder = spools.parent
        """The hand's own."""
        self.spools = spools
        self.shell = shell
        self.start_limit = start_limit
        self.loop = selectors.DefaultSelector()
        self.children = runner.Children()
        self.keep = keep
        self.history: History | None = None
        """Begins with the first call: what was mounted before is no call's doing."""
        self.people = 0
        """Who may change files besides: what is theirs and what a call's nobody can tell."""


class Call:
    """A call the supervisor holds: waiting, running, or finished with `result` set."""

    untold = 0.0
    """Seconds for which nobody need know its process: over before that, it is not told."""

    def __init__(
        self, place: Place, call_id: str, tool: str, given: Mapping[str, Any], limit: float
    ) -> None:
        """`limit` is the caller's time limit in seconds; 0 for none of its own."""
        self.call_id = call_id
        self.tool = tool
        self.given = given
        self.limit = _time_limit(given, limit)
        self.capture = Capture()
        self.spool = spool.Writer(place.spools / call_id)
        """Output beyond what the capture keeps of the beginning."""
        self.remark = ""
        """What the supervisor has to say of it."""
        self.runner: runner.Runner | None = None
        self.result: Event | None = None
        self._place = place
        self._output = -1
        self._reports = b""
        self._answer: Event = {}
        self._status: int | None = None
        self._cause = ""
        self._note = ""
        self._started = time.time()
        self._began = self._heard = time.monotonic()
        self._ended = self._kill_at = self._resume_at = NEVER
        self._start_by = NEVER
        """When it is given up, unless its root said before that the command runs."""
        self._reporting = False
        """The runner's report is open."""
        self._dead_by = NEVER
        """When its end is waited for no longer, once it was killed."""
        self._killed = 0
        """Processes that were killed with it."""
        self._resists = False
        """Some of them did not end."""
        self._said = 0

    @property
    def lingers(self) -> bool:
        """Processes of it live, or its pipe is open: a background job, once there is a result."""
        return self._output >= 0 or (self.runner is not None and self._status is None)

    @property
    def restarts(self) -> bool:
        """It is about the shell itself, and needs no process."""
        return self.tool == "bash" and bool(self.given.get("restart"))

    @property
    def root(self) -> runner.Runner | None:
        """The process at the root of its tree, while that lives."""
        return self.runner if self._status is None else None

    def begin(self) -> None:
        """Start it; when that fails there is a result at once."""
        place = self._place
        self._started, self._began = time.time(), time.monotonic()
        self._kill_at = self._began + self.limit
        if self.tool not in mounting.TOOLS:
            place.history = place.history or History(place.workspace, place.keep)
        inner: int | None = None
        try:
            if self.tool == "bash":
                self._output, inner = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(self._output, False)
                place.loop.register(self._output, selectors.EVENT_READ, self.on_output)
                argv, environment, self._note = place.shell.prepare(self.given["command"])
                body = runner.command(argv, environment, str(place.shell.cwd), inner)
                self._start_by = self._began + place.start_limit
            else:
                mounts = self.tool in mounting.TOOLS
                limit = mounting.CPU_SECONDS if mounts else _CPU_SECONDS
                body = runner.function(self._file_tool(), limit)
            self.runner = place.children.fork(body, *([] if inner is None else [inner]))
            place.loop.register(self.runner.report, selectors.EVENT_READ, self.on_report)
            self._reporting = True
        except OSError as error:
            self._answer["failed"] = f"could not start: {(error.strerror or 'failed').lower()}"
            self._close_output()
            self._finish("error")
        finally:
            if inner is not None:
                os.close(inner)

    def on_output(self) -> list[Event]:
        """Take what the call wrote; gives what of it is to be shown live."""
        try:
            data = os.read(self._output, _READ)
        except BlockingIOError:
            return []
        if not data:
            self._close_output()
            return []
        if self.result is not None:
            # Late output is read, so that nobody gets SIGPIPE, and thrown away.
            self._place.loop.unregister(self._output)
            self._resume_at = time.monotonic() + _THROTTLE
            return []
        self._keep(data)
        self._heard = time.monotonic()
        if self.capture.total > _FLOOD and self._dead_by == NEVER and self._ended == NEVER:
            self._kill("flooded")  # what only the background writes ends the call, not the work
        return self.unsaid()

    def on_report(self) -> list[Event]:
        """Take what the runner reports: an answer, the main process's end, its own."""
        assert self.runner is not None
        try:
            data = os.read(self.runner.report, _READ)
        except BlockingIOError:
            return []
        if not data:
            self._close_report()
        *lines, self._reports = (self._reports + data).split(b"\n")
        for line in lines:
            self._answer.update(json.loads(line))
            self._start_by = NEVER
        if self._answer.keys() & {"exit", "content", "failed"}:
            self._ended = min(self._ended, time.monotonic())
        return []

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._bury()
        if self.result is not None:
            if now >= self._resume_at:
                self._resume_at = NEVER
                self._place.loop.register(self._output, selectors.EVENT_READ, self.on_output)
        elif self._dead_by != NEVER:
            if self._status is not None or now >= self._dead_by:
                self._finish_killed()
        elif self._cause == "cancelled":
            if self._status is not None:
                self._finish("cancelled", "cancelled")
            elif now >= self._kill_at:
                self._kill("cancelled")
        elif now >= self._settled_at():
            self._finish("ok" if self._succeeded() else "error")
        elif self._ended == NEVER and now >= self._kill_at:
            self._kill("timed_out")
        elif self._ended == NEVER and now >= self._start_by:
            self._kill("interrupted")

    def due(self) -> float:
        """When `tick` has something to do, on the monotonic clock."""
        if self.result is not None:
            return self._resume_at
        if self._dead_by != NEVER:
            return self._dead_by
        if self._cause == "cancelled":
            return 0.0 if self._status is not None else self._kill_at
        kill_at = min(self._kill_at, self._start_by) if self._ended == NEVER else NEVER
        return min(self._settled_at(), kill_at)

    def cancel(self, grace: float) -> None:
        """TERM to all of it; KILL after `grace` seconds. Nothing, once the main process ended."""
        if self.result is not None or self.runner is None or self._ended != NEVER:
            return
        self._kill_at = min(self._kill_at, time.monotonic() + grace)
        if self._cause:
            return  # told before
        self._cause = "cancelled"
        for process in tree.descendants(self.runner.pid):
            tree.send(process, signal.SIGTERM)
            tree.send(process, signal.SIGCONT)

    def answer(self, content: str) -> None:
        """Settle a call that needs no process."""
        self._note = ""
        self._answer["exit"] = 0
        self._finish("ok")
        assert self.result is not None
        self.result |= {"content": content, "exit_code": None}

    def freeze(self) -> None:
        """Stop the main process's group in one stroke, before a bomb can outrun the sweep.

        Its members are the call's own: it is in a session that the call began.
        """
        main = tree.find(self._answer.get("main", 0))
        if main and self.root and main.parent == self.root.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(main.pid, signal.SIGSTOP)

    def refuse(self, outcome: str, why: str) -> None:
        """Settle a call that was never started."""
        self._answer["failed"] = why
        self._finish(outcome)

    def unsaid(self, *, anew: bool = False) -> list[Event]:
        """Output the daemon was not told of, or all of it `anew`.

        The beginning as it is; of what is beyond, where it ends: the spool has it.
        """
        begin = 0 if anew else self._said
        events: list[Event] = []
        if begin < len(self.capture.head):
            data = base64.b64encode(self.capture.head[begin:]).decode()
            events.append({"event": "output", "offset": begin, "data": data})
        if max(begin, len(self.capture.head)) < self.capture.total:
            events.append({"event": "spooled", "end": self.capture.total})
        self._said = self.capture.total
        return [{**event, "call_id": self.call_id} for event in events]

    def _keep(self, data: bytes) -> None:
        before = len(self.capture.head)
        self.capture.add(data)
        if beyond := data[len(self.capture.head) - before :]:
            self.spool.write(self.capture.total - len(beyond), beyond)

    def _file_tool(self) -> Callable[[], Any]:
        """What gives its text; or an object with `text` and `attachments`."""
        place, given = self._place, self.given
        if mount := mounting.TOOLS.get(self.tool):
            return lambda: mount(Workspace(place.workspace), place.folder, given)
        # Loaded by the first of them, here and not in each one's process: a hand is ready sooner.
        from hands.inside import file_tools

        return lambda: file_tools.run(self.tool, Workspace(place.workspace), place.folder, given)

    def _settled_at(self) -> float:
        """When a call whose main process ended is over: pipe closed, or quiet, or time up."""
        if self._output < 0 or self.capture.total > _FLOOD:
            return self._ended
        return min(max(self._ended, self._heard) + _IDLE, self._ended + _DRAIN)

    def _succeeded(self) -> bool:
        return "content" in self._answer or self._answer.get("exit") == 0

    def _kill(self, cause: str) -> None:
        assert self.runner is not None
        self.freeze()
        self._killed = tree.kill_below(self.runner.pid)
        self._resists = bool(tree.descendants(self.runner.pid))
        tree.kill_tree(self.runner.pid, self.runner.start)
        self._cause = cause
        self._close_report()
        self._dead_by = time.monotonic() + runner.END_LIMIT

    def _finish_killed(self) -> None:
        """All of it ended; or the kernel does not let it, as on a network disk that is gone."""
        if self._resists or self._status is None:
            # What it does may still happen, so it is not said that it was stopped.
            self._cause = "resists"
        while self._cause != "resists" and self._output >= 0 and self._drain_once():
            pass  # what it wrote up to its death
        self._close_output()
        outcome = {"flooded": "error", "resists": "interrupted"}.get(self._cause, self._cause)
        self._finish(outcome, self._killed_note(self._killed))

    def _drain_once(self) -> bool:
        try:
            data = os.read(self._output, _READ)
        except BlockingIOError:
            return False
        self._keep(data)
        return bool(data)

    def _killed_note(self, killed: int) -> str:
        processes = f"{counted(killed, 'process')} killed"
        if self._cause == "timed_out":
            return f"timed out after {self.limit:g} s; {processes}"
        if self._cause == "flooded":
            return f"killed after {_FLOOD} bytes of output; {processes}; write it to a file"
        if self._cause == "resists":
            return "interrupted: killed, but it does not end; this call may have partly happened"
        if self._cause == "interrupted":
            how = f"did not start within {self._place.start_limit:g} s; {processes}"
            return f"interrupted: {how}; this call may have partly happened"
        return f"cancelled; {processes}"

    def _bury(self) -> None:
        """Once the runner is gone, take its status, and its strays if it did not end by itself."""
        if self.runner is None or self._reporting or self._status is not None:
            return
        self._status = self._place.children.ended(self.runner.pid)
        if self._status is None:
            return
        if self._status != 0:
            self._place.children.kill_strays()
        self._ended = min(self._ended, time.monotonic())

    def _close_report(self) -> None:
        if self.runner and self._reporting:
            self._reporting = False
            self._place.loop.unregister(self.runner.report)
            os.close(self.runner.report)

    def _close_output(self) -> None:
        if self._output >= 0:
            if self._resume_at == NEVER:
                self._place.loop.unregister(self._output)
            self._resume_at = NEVER
            os.close(self._output)
            self._output = -1

    def _finish(self, outcome: str, *notes: str) -> None:
        self.spool.close()
        text, omitted = self.capture.text()
        attached: list[Event] = []
        failed = str(self._answer.get("failed", ""))
        if self.tool != "bash":
            # A file tool's refusal is its answer, not a remark on it.
            answer = self._answer.get("content", failed)
            attached = answer["attachments"] if isinstance(answer, dict) else []
            text, failed = str(answer["text"] if attached else answer), ""
        left = 0
        if self.runner and self._status is None and self._answer.get("more"):
            left = len(tree.descendants(self.runner.pid))
        code = self._answer.get("exit")
        if code is not None and code < 0:
            code = 128 - code
        footers = [failed, *notes, self.remark]
        if not self._cause:
            footers.append(self._how_it_ended(code))
        if left:
            footers.append(f"{counted(left, 'background process')} running")
        if self.tool == "bash" and self.runner and "failed" not in self._answer:
            footers += [self._note, self._place.shell.carry()]
        size = self.capture.total if self.tool == "bash" else len(text.encode("utf-8", "replace"))
        self.result = {
            "outcome": outcome,
            "content": compose(text, *footers),
            "exit_code": code,
            "output_bytes": size,
            "omitted_bytes": omitted,
            "background": left,
            "started": self._started,
            "elapsed": time.monotonic() - self._began,
        }
        if attached:
            self.result["attachments"] = attached
        if self.runner and self.tool not in _QUIET:
            self.result |= self._changes()

    def _changes(self) -> Mapping[str, Any]:
        """What it did to the workspace; unknown when a person was there beside it."""
        place = self._place
        if place.people:
            place.history = None
        return {"files_unknown": True} if place.history is None else place.history.changes()

    def _how_it_ended(self, code: int | None) -> str:
        if code:
            died = self._answer["exit"] < 0
            return f"exit code {code}" + (
                f": {_signal_name(-self._answer['exit'])}" if died else ""
            )
        if code is None and self._status == -signal.SIGXCPU:
            return f"stopped after {_CPU_SECONDS} s of CPU; ask for less, or use bash"
        if code is None and self._status:
            return f"the call's root process ended unexpectedly ({self._status}); all of it is dead"
        return ""


def _time_limit(given: Mapping[str, Any], limit: float) -> float:
    """The tool's own limit within the caller's, in seconds."""
    own = given.get("timeout_ms", 0) / 1000 or (limit or TIME_LIMIT)
    return min(own, limit) if limit else own


def _signal_name(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"
