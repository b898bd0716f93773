"""A person's shell in a hand: on a terminal of its own, or with its three pipes."""

import fcntl
import functools
import json
import os
import pty
import select
import signal
import socket
import struct
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hands.inside import tunnel_frames as frames
from hands.inside.wire import ROOM, Interest, Wire, wait

_READ = 64 * 1024
NEVER = float("inf")
_QUIET = 0.1
"""Seconds of silence after the shell ended, when something else holds its terminal open."""
_DRAIN = 1.0
"""Seconds for what is left to be read, once it ended."""
_END_OF_FILE = b"\x04"
"""What says so on a terminal."""
_SIZE = struct.Struct("HHHH")


def serve(
    cwd: Path,
    environment: Mapping[bytes, bytes],
    options: Mapping[str, Any],
    connected: socket.socket,
) -> dict[str, Any]:
    """Run it to its end: its exit code. Raises Gone and OSError."""
    command = options.get("command")
    argv = ["bash", "--noprofile", "--norc", *(["-c", command] if command else [])]
    variables = {**environment, b"HISTFILE": b"/dev/null"}  # nothing that is typed is kept
    if options.get("tty"):
        for name in (b"PAGER", b"GIT_PAGER"):
            variables.pop(name, None)
        variables[b"TERM"] = str(options.get("term") or "xterm").encode()
        variables[b"PS1"] = rb"\u@\h:\w\$ "
    return {"code": _Shell(argv, variables, cwd, options, Wire(connected)).run()}


class _Shell:
    def __init__(
        self,
        argv: list[str],
        environment: Mapping[bytes, bytes],
        cwd: Path,
        options: Mapping[str, Any],
        wire: Wire,
    ) -> None:
        self._wire = wire
        self._tty = bool(options.get("tty"))
        self._to_shell = bytearray()
        self._ended = False
        """The person sends no more."""
        if self._tty:
            master, slave = pty.openpty()
            _resize(master, options)
            inner = (slave, slave, slave)
            self._input = master
            self._outputs = {master: frames.DATA}
        else:
            (stdin, self._input), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
            inner = (stdin, stdout, stderr)
            self._outputs = {out: frames.DATA, err: frames.ERROR}
        for handle in {self._input, *self._outputs}:
            os.set_blocking(handle, False)
        self._pid = os.fork()
        if self._pid == 0:
            _become(argv, environment, cwd, inner, tty=self._tty)
        for handle in set(inner):
            os.close(handle)
        self._pidfd = os.pidfd_open(self._pid)

    def run(self) -> int:
        """Until the shell ended and what it wrote was sent."""
        ends = quiet = NEVER
        status: int | None = None
        while self._outputs or status is None:
            left = min(ends, quiet) - time.monotonic()
            if left <= 0:
                break  # something else holds its terminal, or its pipes
            moved = wait(self._interests(status is None), None if left == NEVER else left)
            if status is None and (status := self._status()) is not None:
                ends = time.monotonic() + _DRAIN
            if status is not None and (moved or quiet == NEVER):
                quiet = time.monotonic() + _QUIET
        for handle in list(self._outputs):
            self._read(handle)
        self._wire.flush()
        assert status is not None
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _status(self) -> int | None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return None
                if pid == self._pid:
                    return status
        return None

    def _interests(self, lives: bool) -> Iterator[Interest]:
        self._wire.taking = lives and not self._ended and len(self._to_shell) < ROOM
        yield self._wire.fileno(), self._wire.wanted(), self._heard
        if lives:
            yield self._pidfd, select.POLLIN, lambda _: None
        masks = {}
        if self._wire.room:
            masks = dict.fromkeys(self._outputs, select.POLLIN)
        if self._to_shell and lives:
            masks[self._input] = masks.get(self._input, 0) | select.POLLOUT
        for handle, mask in masks.items():
            yield handle, mask, functools.partial(self._moved, handle)

    def _heard(self, mask: int) -> None:
        for kind, data in self._wire.ready(mask):
            if kind == frames.DATA:
                self._to_shell += data
            elif kind == frames.RESIZE and self._tty:
                _resize(self._input, json.loads(data))
            elif kind == frames.END:
                self._ended = True
                if self._tty:
                    self._to_shell += _END_OF_FILE
        self._end_input()

    def _moved(self, handle: int, mask: int) -> None:
        if handle == self._input and mask & (select.POLLOUT | select.POLLERR):
            try:
                del self._to_shell[: os.write(handle, self._to_shell)]
            except BlockingIOError:
                pass
            except OSError:
                self._to_shell.clear()  # nobody reads it
            self._end_input()
        if handle in self._outputs and mask & ~select.POLLOUT:
            self._read(handle)

    def _end_input(self) -> None:
        if self._ended and not self._to_shell and not self._tty and self._input >= 0:
            os.close(self._input)
            self._input = -1

    def _read(self, handle: int) -> None:
        """All that is there, for a terminal gives little at once."""
        data = b""
        try:
            while len(data) < _READ and (piece := os.read(handle, _READ)):
                data += piece
            over = len(data) < _READ
        except BlockingIOError:
            over = False
        except OSError:
            over = True  # nobody has the terminal any more
        if data:
            self._wire.put(frames.framed(self._outputs[handle], data))
        if over:
            del self._outputs[handle]


def _resize(terminal: int, size: Mapping[str, Any]) -> None:
    """Set it, as far as it is one that a terminal can have."""
    rows, columns = int(size.get("rows") or 24), int(size.get("columns") or 80)
    with suppress(OSError, struct.error):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, _SIZE.pack(rows, columns, 0, 0))


def _become(
    argv: list[str],
    environment: Mapping[bytes, bytes],
    cwd: Path,
    inner: tuple[int, int, int],
    *,
    tty: bool,
) -> NoReturn:
    try:
        os.setsid()
        if tty:
            fcntl.ioctl(inner[0], termios.TIOCSCTTY, 0)
        for target, handle in enumerate(inner):
            os.dup2(handle, target)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if number < signal.SIGRTMIN:
                signal.signal(number, signal.SIG_DFL)
        os.closerange(3, 1 << 16)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, dict(environment))  # noqa: S606 - a shell it is
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)
