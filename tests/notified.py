"""Other people's servers as children: they say when they serve, and are ended by pid, all of them.

PostgreSQL and Redis of Debian tell a service manager that they are ready by a datagram on a
socket that NOTIFY_SOCKET names. We are that manager, so nothing is polled. As root they run as
a user of their own. When whoever started one dies without ending it, so does the server.
"""

import grp
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults import tree
from tests.pace import SCALE

WAIT = 30.0 * SCALE
"""Seconds a server may take to start, or to stop before it is killed."""


def owned_by(folder: Path, user: str) -> dict[str, object]:
    """Give the folder to `user` when we are root; how subprocess then runs as that user."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(user)
    shutil.chown(folder, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class Server:
    """One foreign server, from its start to its end."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        user: str,
        stdin: bytes = b"",
        environ: dict[str, str] | None = None,
    ) -> None:
        """Start it in `folder`, and wait until it serves; RuntimeError with its log if it ends."""
        self.log = folder / "log"
        address = folder / "ready"
        address.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(address))
            owned_by(address, user)
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*_as(user), *command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env={
                        "PATH": os.environ["PATH"],
                        "NOTIFY_SOCKET": str(address),
                        **(environ or {}),
                    },
                    start_new_session=True,
                )
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(stdin)
                self._process.stdin.close()
                self._await_ready(ready, command[0])
            except BaseException:
                self.kill()
                raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def _await_ready(self, ready: socket.socket, name: str) -> None:
        end = os.pidfd_open(self.pid)
        deadline = time.monotonic() + WAIT
        either: list[socket.socket | int] = [ready, end]
        try:
            while (left := deadline - time.monotonic()) > 0:
                readable, _, _ = select.select(either, [], [], left)
                if ready in readable:
                    if b"READY=1" in ready.recv(4096).split(b"\n"):
                        return
                elif end in readable:
                    break
        finally:
            os.close(end)
        raise RuntimeError(f"{name} did not come to serve: {self.log.read_text()[-2000:]}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal and wait; killed when it does not end in time."""
        if self.is_alive:
            self._process.send_signal(number)
            try:
                self._process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL for it and all its children; all have ended when this returns."""
        if not self.is_alive:
            return
        # Stopped first, so that it makes no child between the look and the kill.
        self._process.send_signal(signal.SIGSTOP)
        ends = []
        try:
            for pid in tree(self.pid):
                try:
                    ends.append(os.pidfd_open(pid))
                except ProcessLookupError:
                    continue
                signal.pidfd_send_signal(ends[-1], signal.SIGKILL)
            for end in ends:
                if not select.select([end], [], [], WAIT)[0]:
                    raise TimeoutError("a process outlived SIGKILL")
            self._process.wait(WAIT)
        finally:
            for end in ends:
                os.close(end)


def _as(user: str) -> list[str]:
    """The command before a command: as that user, and ended with the thread that started it."""
    command = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() == 0:
        group = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
        command += ["--reuid", user, "--regid", group, "--clear-groups"]
    return [*command, "--"]


def free_port() -> int:
    """A loopback port, below those that outgoing connections take: free also after a restart."""
    start = 10_000 + (os.getpid() * 37 + time.monotonic_ns() // 1000) % 20_000
    for port in range(start, start + 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port on loopback")
