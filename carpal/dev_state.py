"""What `carpal dev` keeps between its runs: its ports, and what it started.

Ports stay the same from run to run, since the daemon remembers where its
brains are. What was started is written down, so that after a kill of `carpal
dev` itself the next one ends what was left.
"""

import asyncio
import fcntl
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec

from carpal import children, hand_mark
from carpal.errors import refuse
from carpal.status import Reason
from carpal.tls import private_folder, write_file

HOST = "127.0.0.1"


class Process(msgspec.Struct, frozen=True):
    """A process by what makes it itself: ids are used again."""

    name: str
    pid: int
    start_time: int

    def is_it(self, pid: int) -> bool:
        """Whether the process that has a pid now is this one."""
        return children.start_time(pid) == self.start_time


class Kept(msgspec.Struct):
    """The file `dev.json` of the state folder."""

    ports: dict[str, int] = {}
    """By what listens there."""
    processes: list[Process] = []

    @classmethod
    def load(cls, state: Path) -> "Kept":
        """What the last run left; nothing when there was none, or its file is damaged."""
        try:
            return msgspec.json.decode((state / "dev.json").read_bytes(), type=cls)
        except (FileNotFoundError, msgspec.DecodeError):
            return cls()

    def save(self, state: Path) -> None:
        """Write it down."""
        write_file(state / "dev.json", msgspec.json.encode(self))

    def note(self, started: Iterable[children.Child]) -> None:
        """Remember what runs now."""
        self.processes = [
            Process(child.name, child.pid, when)
            for child in started
            if (when := children.start_time(child.pid)) is not None
        ]

    async def end_leftovers(self) -> int:
        """End what a killed run left behind; how many that were."""
        ended = await asyncio.gather(
            *(children.end_stranger(left.pid, left.is_it) for left in self.processes)
        )
        self.processes = []
        return sum(ended)

    def choose_ports(self, names: Iterable[str]) -> set[str]:
        """A free port for each name, the one it had if that is free; those that moved."""
        moved = set()
        with ExitStack() as held:  # all at once, so that no two get the same
            for name in names:
                port = self.ports.get(name, 0)
                chosen = _free(held, port) or _free(held, 0)
                if chosen != port:
                    moved.add(name)
                self.ports[name] = chosen
        return moved


def _free(held: ExitStack, port: int) -> int:
    """`port`, or any when it is 0, if it is free; else 0."""
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError:
        return 0
    found: int = listener.getsockname()[1]
    return found


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the state folder; CONFIG_INVALID when another `carpal dev` does."""
    private_folder(state)
    handle = os.open(state / "dev.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"`carpal dev` already runs on {state}",
                action="use it, end it, or give another --state-dir",
            ) from None
        yield
    finally:
        os.close(handle)


async def end_supervisors(state: Path) -> int:
    """End the hands of the state folder; how many processes that were.

    Supervisors outlive their daemon by design; TERM makes one kill all it started. They are
    known by the hand's folder on their command line; in a sandbox, where that is another, by the
    mark in their environment. There the first process takes no TERM, and all end with it.
    """
    hands = f"{state / 'hand' / 'hands'}/"
    marks = hand_mark.every(state / "hand" / "hands")

    def is_ours(pid: int) -> bool:
        arguments = children.arguments_of(pid)
        return any(
            flag == "--folder" and value.startswith(hands) for flag, value in pairwise(arguments)
        )

    def is_marked(pid: int) -> bool:
        return any(name.startswith(marks) for name in children.environment_of(pid))

    found = [pid for pid in children.all_pids() if is_ours(pid)]
    ended = sum(await asyncio.gather(*(children.end_stranger(pid, is_ours) for pid in found)))
    left = [pid for pid in children.all_pids() if is_marked(pid)]
    kills = (children.end_stranger(pid, is_marked, children.AT_ONCE) for pid in left)
    return ended + sum(await asyncio.gather(*kills))
