"""A real Docker engine, from Debian's `docker.io`, as a private process that tests may kill.

Never the system's own: it has its own data, its own containerd and its own socket, and makes no
bridge and no firewall rule. Containers outlive it, as with every engine that is set so
(`live-restore`); `close` removes them all the same.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import requests

from tests import private_etc
from tests.notified import WAIT

_PROGRAMS = ("dockerd", "containerd", "runc")


def missing() -> str:
    """Why no engine can be started here; empty when one can."""
    if os.geteuid() != 0:
        return "a private Docker engine needs root"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} here: Debian's package `docker.io` brings them"
    return ""


class Engine:
    """One engine and its data."""

    def __init__(
        self, folder: Path, options: Sequence[str] = (), etc: Mapping[str, str] | None = None
    ) -> None:
        """`options` are more of dockerd's; `etc` is what it alone sees in these files of /etc."""
        self.folder = folder
        self.url = f"unix://{folder}/docker.sock"
        self._options = options
        self._etc = etc
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Any = None

    @property
    def client(self) -> Any:
        """A client of it."""
        if self._client is None:
            self._client = docker.DockerClient(base_url=self.url, version="auto", timeout=int(WAIT))
        return self._client

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; it answers when this returns. RuntimeError with its log when it ends."""
        config = self.folder / "daemon.json"  # the machine's own would be read otherwise
        config.write_text(json.dumps({"features": {"buildkit": False}}))
        command = [
            *("dockerd", "--config-file", str(config), "--host", self.url),
            *("--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec"),
            *("--pidfile", f"{self.folder}/pid", "--log-level", "warn"),
            *("--bridge", "none", "--iptables=false", "--ip6tables=false"),
            *("--ip-forward=false", "--ip-masq=false", "--live-restore"),
            *self._options,
        ]
        if self._etc:
            command = private_etc.command(self.folder, self._etc, command)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        _until(self._answers, "the engine answers")

    def kill(self) -> None:
        """SIGKILL; its containers go on."""
        self._forget()
        if self._process is not None and self.is_alive:
            # With its containerd, which would end by itself, but not at once.
            # Not all below it: that is also what runs the containers.
            noted = self.folder / "exec/containerd/containerd.pid"
            pid = int(noted.read_text())
            self._process.kill()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._process.wait(WAIT)
            _until(lambda: not _lives(pid), "the engine and its containerd are gone")
            # While nobody has waited for that process, the next engine would take it for alive.
            noted.unlink()

    def pause(self) -> None:
        """It hangs, until `go_on`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM; its containers go on."""
        self._forget()
        if self._process is not None and self.is_alive:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.kill()

    def close(self) -> None:
        """End it and every container of it."""
        if not self.is_alive:
            self.start()
        for container in self.client.api.containers(all=True):
            with suppress(docker.errors.APIError):  # it may be going by itself
                self.client.api.remove_container(container["Id"], force=True, v=True)
        self.stop()
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _until(lambda: not self._left(), "nothing of the engine is left")

    def containers(self) -> list[str]:
        """The names of all there are, also those that do not run."""
        return [one["Names"][0] for one in self.client.api.containers(all=True)]

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"dockerd ended: {(self.folder / 'log').read_text()[-2000:]}")
        with socket.socket(socket.AF_UNIX) as trying:
            if trying.connect_ex(f"{self.folder}/docker.sock") != 0:
                return False  # the client would leave its socket open
        try:
            return bool(self.client.ping())
        except (requests.RequestException, docker.errors.DockerException):
            # It listens, and is not ready.
            return False

    def _forget(self) -> None:
        """Let go of the connections to it."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _left(self) -> list[int]:
        """Processes that name its folder: containerd, and shims of containers."""
        mark = os.fsencode(self.folder)
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return [pid for pid in found if pid != os.getpid()]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {WAIT:g} s: {what}")
        time.sleep(0.02)


@contextmanager
def engine(options: Sequence[str] = (), etc: Mapping[str, str] | None = None) -> Iterator[Engine]:
    """A fresh engine that serves; nothing of it is left afterwards."""
    # Short: a socket's path holds 107 bytes, and containerd's are below it.
    folder = Path(tempfile.mkdtemp(prefix="carpal-eng-", dir="/tmp"))
    folder.chmod(0o711)  # users it maps to must get through to what is theirs
    made = Engine(folder, options, etc)
    try:
        made.start()
        yield made
    finally:
        try:
            made.close()
        finally:
            _unmount_below(folder)
            shutil.rmtree(folder)


def _unmount_below(folder: Path) -> None:
    """What a killed engine leaves mounted."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4] for line in lines]
    for point in sorted((p for p in points if p.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True, timeout=WAIT)
