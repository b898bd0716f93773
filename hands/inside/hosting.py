"""A supervisor whose tools another process runs, of code that is not ours: the hand's host.

It is started with the hand and dies with it. What it says is bounded and checked, and none of it
is waited for: a host that hangs, floods or dies ends its own hand. What is said to it, and by it,
`hands/plugins/host.py` says; what it writes to its standard output is the output of the call that
runs just then.
"""

import contextlib
import functools
import json
import os
import select
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hands.inside import mounting, runner, tree
from hands.inside.call import NEVER, Call
from hands.inside.hosted import HostedCall
from hands.inside.supervising import Supervisor

RELEASE_LIMIT = 3.0
"""Seconds for a host to end what it has before it is killed."""
_ANSWER_MAX = 4 * 1024 * 1024
"""Bytes of one thing it says; an answer of ours is a tenth of that."""
_LATE = 0.02
"""Seconds between reads of output that is no call's: a flood of it costs little."""
_END = 1.0
"""Seconds for a host that closed its line to end."""
_READ = 64 * 1024
_WHY_MAX = 500
"""Characters of why a hand is lost."""
_LENGTH = struct.Struct(">I")


class Host:
    """The process, and the line to it."""

    def __init__(self, command: Sequence[str], loop: selectors.BaseSelector) -> None:
        self.call: HostedCall | None = None
        """The one that runs in it."""
        self.gone = ""
        """Why it is of no more use; its hand has to end then."""
        self.late_at = NEVER
        """When output that is no call's is looked at again."""
        self.hung_at = NEVER
        """When it is killed, for it closed its line."""
        self._command = list(command)
        self._loop = loop
        self._in = bytearray()
        self._out = bytearray()
        self._pid = self._start = 0

    def start(self, children: runner.Children) -> None:
        """Start it, once. Raises OSError."""
        self._children = children
        self._line, theirs = socket.socketpair()
        self._output, inner = os.pipe2(os.O_CLOEXEC)
        body = functools.partial(self._become, theirs.fileno(), inner)
        started = children.fork(body, theirs.fileno(), inner)
        os.close(started.report)  # it has nothing to report but its end
        self._pid, self._start = started.pid, started.start
        theirs.close()
        os.close(inner)
        os.set_blocking(self._output, False)
        self._line.setblocking(False)
        self._loop.register(self._line, selectors.EVENT_READ, self._ready)
        self._loop.register(self._output, selectors.EVENT_READ, self._read_output)

    @property
    def root(self) -> runner.Runner | None:
        """It, as a call's root."""
        return runner.Runner(self._pid, self._start, -1) if self._pid else None

    def ask(self, **message: Any) -> None:
        """Say something to it."""
        data = json.dumps(message).encode()
        self._out += _LENGTH.pack(len(data)) + data
        self._flush()

    def kill(self, why: str) -> None:
        """Kill it, and all that it started."""
        if self._pid:
            tree.kill_tree(self._pid, self._start)
        self.gone = self.gone or why

    def look(self, now: float) -> None:
        """See whether it lives."""
        if now >= self.late_at:
            self.late_at = NEVER
            self._loop.register(self._output, selectors.EVENT_READ, self._read_output)
        if not self._pid or self.gone:
            return
        status = self._children.ended(self._pid)
        if status is not None:
            while self._read_line():
                pass  # what it said before
            self.drain()
            self._pid = 0
            self.gone = self.gone or f"its process {_how(status)}"
        elif now >= self.hung_at:
            self.kill("its process hung up")

    def release(self) -> None:
        """Have it end by itself, for a little while."""
        if not self._pid or not tree.alive(self._pid, self._start):
            return
        self.ask(op="release")
        handle = os.pidfd_open(self._pid)  # not reaped meanwhile: that is done here alone
        try:
            ends = time.monotonic() + RELEASE_LIMIT
            waited = select.poll()
            waited.register(handle, select.POLLIN)
            waited.register(self._output, select.POLLIN)
            while (left := ends - time.monotonic()) > 0:
                ready = [fd for fd, _ in waited.poll(left * 1000)]
                if handle in ready:
                    return
                # Nobody waits for it, but a full pipe would keep it from ending.
                with contextlib.suppress(BlockingIOError):
                    if ready and not os.read(self._output, _READ):
                        waited.unregister(self._output)
                self._flush()
        finally:
            os.close(handle)

    def drain(self) -> None:
        """Give the call what it wrote before it said how it ended."""
        for _ in range(64):  # more than a pipe holds; what writes on is not the call
            try:
                data = os.read(self._output, _READ)
            except BlockingIOError:
                return
            if not data:
                return
            if self.call:
                self.call.wrote(data)

    def _become(self, line: int, output: int, _report: Callable[..., None]) -> None:
        """In the new process."""
        tree.signal_on_parent_death(signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        os.set_inheritable(line, True)
        command = [each.replace("{line}", str(line)) for each in self._command]
        try:
            os.execv(command[0], command)  # noqa: S606 - what the daemon says
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())

    def _ready(self) -> list[dict[str, Any]]:
        self._flush()
        self._read_line()
        return self.call.unsaid() if self.call else []

    def _read_line(self) -> bool:
        """Take what it said; whether there may be more."""
        try:
            data = self._line.recv(256 * 1024)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            with contextlib.suppress(KeyError):
                self._loop.unregister(self._line)
                self.hung_at = time.monotonic() + _END
            return False
        self._in += data
        try:
            self._take()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.kill(f"its process said what is not understood: {error}")
        return not self.gone

    def _take(self) -> None:
        while len(self._in) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._in)
            if size > _ANSWER_MAX:
                raise ValueError(f"an answer of {size} bytes")
            if len(self._in) < _LENGTH.size + size:
                return
            frame = bytes(self._in[_LENGTH.size : _LENGTH.size + size])
            del self._in[: _LENGTH.size + size]
            answer = json.loads(frame)
            if answer["outcome"] == "lost" and not answer["call_id"]:  # it says so unasked
                self.gone = self.gone or str(answer["content"])[:_WHY_MAX]
                return
            if self.call is None or answer["call_id"] != self.call.call_id:
                raise ValueError("an answer to what was not asked")
            self.drain()
            if self.call:  # it may have flooded
                self.call.answered(answer)
            if answer["outcome"] == "lost":
                self.gone = self.gone or str(answer["content"])[:_WHY_MAX]

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._line.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # it is gone: its end says so
        with contextlib.suppress(KeyError):
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
            self._loop.modify(self._line, wanted, self._ready)

    def _read_output(self) -> list[dict[str, Any]]:
        try:
            data = os.read(self._output, _READ)
        except BlockingIOError:
            return []
        if data and (call := self.call):
            call.wrote(data)  # it may have been too much, and the call over
            return call.unsaid()
        self._loop.unregister(self._output)
        if data:
            self.late_at = time.monotonic() + _LATE
        return []


class HostedSupervisor(Supervisor):
    """Of a hand that has a host."""

    host: Host

    def __init__(self, command: Sequence[str], *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.host = Host(command, self._place.loop)
        try:
            self.host.start(self._place.children)
        except OSError as error:
            self.host.gone = f"its process cannot be started: {error.strerror}"

    def _call(self, call_id: str, tool: str, given: Mapping[str, Any], limit: float) -> Call:
        if tool in mounting.TOOLS:  # the daemon's own question, and no tool of the host's
            return super()._call(call_id, tool, given, limit)
        return HostedCall(self._place, call_id, tool, given, limit, host=self.host)

    def _pause(self) -> float:
        due = min(self.host.late_at, self.host.hung_at)
        return min(super()._pause(), due - time.monotonic())

    def _tick(self) -> None:
        self._place.children.reap()
        self.host.look(time.monotonic())
        super()._tick()
        if self.host.gone and not self._ending:
            self._ending = self.host.gone

    def _before_the_end(self) -> None:
        self.host.release()


def hosted(command: Sequence[str]) -> Callable[..., Supervisor]:
    """A supervisor whose host is that program; `{line}` in it is the line's descriptor."""
    return functools.partial(HostedSupervisor, command)


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"died by {signal.Signals(-status).name}"
    except ValueError:
        return f"died by signal {-status}"
