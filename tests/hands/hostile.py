"""A hostile program in a hand, and the machine around it that it goes for.

What it manages it prints; what it leaves is looked at from outside.
"""

import asyncio
import ctypes
import json
import os
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from hands.inside import tree
from tests.hands.place import Place, until

MARK = "7277"
"""Seconds that its processes sleep, and nobody else."""
SECRET = "xyzzy-outside"

_LOOKS = r"""
import ctypes, glob, json, os, shutil, signal, socket, subprocess, sys, time
there = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
managed = []
stranger = ("sleep\0%s\0" % there["stranger"]).encode()

def tries(name):
    def run(attempt):
        try:
            if attempt():
                managed.append(name)
        except (OSError, subprocess.SubprocessError, ValueError):
            pass
    return run

def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)

def written(path):
    with open(path, "wb") as file:
        file.write(b"broken")
    return True

# See.
for path in there["secrets"]:
    tries("read " + path)(lambda: read(path))
tries("a folder outside")(lambda: os.listdir(os.path.dirname(there["secrets"][0])))
def all_of(name):
    for path in glob.glob("/proc/[0-9]*/" + name):
        try:
            yield read(path)
        except OSError:
            pass

tries("another's environment")(lambda: any(
    there["secret"].encode() in each for each in all_of("environ")))
tries("another's process")(lambda: stranger in all_of("cmdline"))
tries("a disk of the machine")(lambda: [
    each for pattern in ("sd*", "vd*", "nvme*", "mem", "kmsg", "loop*")
    for each in glob.glob("/dev/" + pattern)])
tries("memory shared outside")(lambda: libc.shmget(there["shared"], 1, 0) >= 0)

# Reach.
for address in there["addresses"]:
    tries("dialled " + str(address))(lambda: socket.create_connection(address, 2))
def connected(address):
    unix = socket.socket(socket.AF_UNIX)
    unix.settimeout(2)
    unix.connect(address)
    return True
for path in there["sockets"]:
    tries("connected " + path)(lambda: connected(path))
tries("an abstract socket")(lambda: connected("\0" + there["abstract"]))
def sent():
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.sendto(b"out", tuple(there["addresses"][-1]))
    return False  # what came is seen outside
tries("sent")(sent)
for pid in there["pids"]:
    tries("signalled %d" % pid)(lambda: os.kill(pid, signal.SIGCONT) is None and
        read("/proc/%d/cmdline" % pid) == stranger)
"""
"""Harms nothing, wherever it runs."""

_HARMS = r"""
# Be more.
for number, name in ((0x10000000, "a user namespace"), (0x20000, "a mount namespace")):
    tries(name)(lambda: libc.unshare(number) == 0)
tries("mounted")(lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, 0) == 0)
tries("root")(lambda: os.setuid(0) is None and os.getuid() == 0)

tries("memory of its supervisor")(lambda: open("/proc/1/mem", "rb"))

# Break.
for path in ("/usr/bin/bash", "/etc/passwd", "/opt/carpal/hands/supervisor.py",
        "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/new", "/usr/new", "/dev/new",
        "/sys/kernel/uevent_helper", *there["secrets"]):
    tries("wrote " + path)(lambda: written(path))
tries("made a device")(lambda: os.mknod("device", 0o60600, os.makedev(8, 0)) is None)
tries("gave a file to root")(lambda: os.chown("/workspace", 0, 0) is None)
for each in (signal.SIGKILL, signal.SIGSTOP):
    tries("none")(lambda: os.kill(1, each))  # whether it lives is seen outside

# Keep: what outlives it, and what leads whoever cleans up to what is outside.
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(3, 64):
        try:
            os.close(number)
        except OSError:
            pass
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.execve("/usr/bin/sleep", ["sleep", there["mark"]], {})
def setuid():
    shutil.copy("/usr/bin/sleep", "run-me")
    os.chmod("run-me", 0o6755)
tries("none")(setuid)
for place in ("/workspace/out", "/run/carpal/kept", "/run/carpal/spool", "/run/carpal/results",
        "/run/carpal/tmp", "/home/hand/out", "/tmp/out"):
    def lead(place=place):
        if os.path.isdir(place) and not os.path.islink(place):
            shutil.rmtree(place)
        elif os.path.lexists(place):
            os.unlink(place)
        os.symlink(there["victim"], place)
    tries("none")(lead)
"""
_TELLS = "print(json.dumps(managed))"


class Machine:
    """What is outside: files, sockets, processes and memory that no hand has a right to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.came: list[bytes] = []
        """Bytes and connections that reached it."""
        self.secrets: list[Path] = []
        self.told: dict[str, Any] = {}


@asynccontextmanager
async def machine(folder: Path, *more: Path) -> AsyncIterator[Machine]:
    """It, in a folder that anyone may read and write; `more` are secrets besides."""
    its = Machine(folder)
    folder.mkdir()
    folder.chmod(0o777)
    victim, secret = folder / "victim", folder / "secret"
    victim.mkdir()
    victim.chmod(0o777)
    (victim / "mine").write_text(SECRET)
    secret.write_text(SECRET)
    secret.chmod(0o666)
    its.secrets = [secret, victim / "mine", *more]
    environment = {**os.environ, "SECRET": SECRET}
    stranger = await asyncio.create_subprocess_exec("sleep", "7278.25", env=environment)
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x5A000000 | os.getpid() & 0xFFFF
    shared = libc.shmget(key, 4096, 0o1666)  # IPC_CREAT, for all
    with ExitStack() as stack:
        loop = asyncio.get_running_loop()
        unix, abstract = folder / "socket", f"carpal-hostile-{os.getpid()}"
        for address in (str(unix), f"\0{abstract}"):
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(address)
            _take(its, loop, stack, listening)
        unix.chmod(0o777)
        ports = []
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            listening = stack.enter_context(socket.socket(socket.AF_INET, kind))
            listening.bind(("0.0.0.0", 0))
            ports.append(listening.getsockname()[1])
            _take(its, loop, stack, listening)
        its.told = {
            "secrets": [*map(str, its.secrets), "/etc/shadow", "/root/.bashrc"],
            "secret": SECRET,
            "stranger": "7278.25",
            "shared": key,
            "addresses": [
                ("127.0.0.1", ports[0]),
                ("169.254.169.254", 80),
                ("127.0.0.1", ports[1]),
            ],
            "sockets": [str(unix), "/var/run/docker.sock", "/run/docker.sock"],
            "abstract": abstract,
            "pids": [stranger.pid, os.getpid()],
            "mark": MARK,
            "victim": str(victim),
        }
        try:
            yield its
        finally:
            stranger.kill()
            await stranger.wait()
            libc.shmctl(shared, 0, None)  # IPC_RMID


def _take(
    its: Machine, loop: asyncio.AbstractEventLoop, stack: ExitStack, listening: socket.socket
) -> None:
    stream = listening.type == socket.SOCK_STREAM
    if stream:
        listening.listen()
    listening.setblocking(False)

    def came() -> None:
        if stream:
            listening.accept()[0].close()
        its.came.append(b"connected" if stream else listening.recv(100))

    loop.add_reader(listening, came)
    stack.callback(loop.remove_reader, listening)


async def let_loose(
    place: Place, hand: str, its: Machine, python: str, *, harms: bool = True
) -> list[str]:
    """What the program managed in a hand, run by this interpreter."""
    program = f"{_LOOKS}{_HARMS if harms else ''}{_TELLS}"
    program = f"{python} - {shlex.quote(json.dumps(its.told))} <<'E'\n{program}\nE"
    said = (await place.sh(hand, program)).content
    told = [line for line in said.splitlines() if line.startswith("[")]
    assert told, said
    managed: list[str] = json.loads(told[0])
    return managed


async def unharmed(its: Machine, place: Place, hand: str, left: Path | None = None) -> None:
    """The machine is as it was, and after the release nothing of the hand is left.

    `left` is a bound workspace, which stays: nothing in it makes anyone more than they are.
    """
    assert (await place.sh(hand, "echo on")).content.startswith("on\n")
    assert not its.came
    assert _sleeping(), "it left nothing behind: this shows nothing"
    await place.release(hand)
    await until(lambda: not _sleeping(), "a process of it is left")
    assert not place.inventory.folder_of(hand).exists()
    assert [path.read_text() for path in its.secrets] == [SECRET] * len(its.secrets)
    assert [path.name for path in (its.folder / "victim").iterdir()] == ["mine"]
    if left is not None:
        assert {path.lstat().st_uid for path in left.rglob("*")} == {left.stat().st_uid}


def _sleeping() -> list[int]:
    return [pid for pid in tree.everyone() if _arguments(pid) == f"sleep\0{MARK}\0".encode()]


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
