"""Rootless Podman, from Debian's packages, as an ordinary user that only it and the tests know.

It serves Docker's interface on a socket of that user's. What it needs of /etc it sees alone;
nothing of it, its user's processes above all, is left afterwards.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from tests import private_etc
from tests.notified import WAIT

_PROGRAMS = ("podman", "newuidmap", "runc", "conmon", "setpriv")
_FIRST = 700_000
"""Users that no machine has; each process of the tests takes another."""
_NAME = "carpalpodman"
# Crun refuses where there are control groups of both versions, and systemd may not be there.
_ENGINE = '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "file"\n'
_STORAGE = '[storage]\ndriver = "vfs"\n'
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> str:
    """Why it cannot be started here; empty when it can."""
    if os.geteuid() != 0:
        return "to be another user needs root"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"no {', '.join(absent)} here: Debian's packages `podman` and `uidmap` bring them"
    return ""


@dataclass(frozen=True, slots=True)
class Podman:
    """One that serves."""

    url: str
    uid: int
    folder: Path
    """The user's own."""
    client: Any

    def containers(self) -> list[str]:
        """The names of all there are, also those that do not run."""
        return [one["Names"][0] for one in self.client.api.containers(all=True)]


@contextmanager
def podman() -> Iterator[Podman]:
    """A fresh one."""
    # Short: a socket's path holds 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="carpal-pod-", dir="/tmp"))
    folder.chmod(0o711)
    uid = _FIRST + os.getpid() % 100_000
    home = folder / "home"
    conf = home / ".config/containers"
    conf.mkdir(parents=True)
    (home / "run").mkdir(mode=0o700)
    (conf / "containers.conf").write_text(_ENGINE)
    (conf / "storage.conf").write_text(_STORAGE)
    for path in (home, *home.rglob("*")):
        os.chown(path, uid, uid)
    url = f"unix://{home}/podman.sock"
    try:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                private_etc.command(folder, _texts(uid, home), _command(uid, home, url)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                start_new_session=True,
            )
        _wait(process, home / "podman.sock", folder / "log")
        client = docker.DockerClient(base_url=url, version="auto", timeout=int(WAIT))
        try:
            yield Podman(url, uid, home, client)
        finally:
            client.close()
            process.kill()
            process.wait(WAIT)
    finally:
        _end_all_of(uid)
        shutil.rmtree(folder)


def _texts(uid: int, home: Path) -> dict[str, str]:
    texts = dict.fromkeys(("subuid", "subgid"), f"{_NAME}:{uid + 1000000}:65536\n")
    user = f"{_NAME}:x:{uid}:{uid}::{home}:/bin/sh\n"
    texts["passwd"] = Path("/etc/passwd").read_text() + user
    texts["group"] = Path("/etc/group").read_text() + f"{_NAME}:x:{uid}:\n"
    return texts


def _command(uid: int, home: Path, url: str) -> Sequence[str]:
    return [
        *("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"),
        *("env", "-i", f"HOME={home}", f"XDG_RUNTIME_DIR={home}/run", f"PATH={_PATH}"),
        *("podman", "system", "service", "--time", "0", url),
    ]


def _wait(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    ends = time.monotonic() + WAIT
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"podman does not serve: {log.read_text()[-2000:]}")
        time.sleep(0.02)


def _end_all_of(uid: int) -> None:
    """What it started, and itself, in every user id that it may map."""
    ends = time.monotonic() + WAIT
    while pids := _of(uid):
        if time.monotonic() > ends:
            raise TimeoutError(f"these do not end: {pids}")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _of(uid: int) -> list[int]:
    mapped = range(uid + 1_000_000, uid + 1_000_000 + 65_536)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            owner = entry.stat().st_uid
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if (owner == uid or owner in mapped) and state != "Z":
                found.append(int(entry.name))
    return found
