"""A world whose links fail: proxies before the brains, points armed in every process, and mended.

Hands of idle sessions are released after a second, so that what is left at the
end of a case is an orphan.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from carpal import hand_mark
from tests.faults import FaultProxy, Points, supervisors
from tests.leftovers import orphans, own_cgroups
from tests.pace import SCALE
from tests.world import Running, World, world

TERM = 2.0 * SCALE
"""Seconds of a lease."""
HEARTBEAT = 1.0 * SCALE
"""Seconds between heartbeats; silence of three ends a link."""
SECONDS = 90.0 * SCALE
"""How long anything may take that only has to happen, silence on a link included."""
BRAINS = ("b1", "b2")
ATTACH = (
    *("daemon.attach_open", "daemon.attach_output", "daemon.attach_result"),
    "brain.attach_acknowledged",
)
"""Frames of a stream of its own for a call's output."""
MANY = 20_000
"""Lines, of 100 KB: output that gets one."""
MOMENTS = ("before_written", "written")
"""Of a frame."""
DESCRIPTORS = 100
"""More than a process has open here; each link that left a socket would add to it."""
CONNECTIONS = 12
"""The daemon's link, the brains' to each other, and some that are just being made or given up."""


@dataclass
class LinkWorld:
    """Two brains behind proxies, a daemon, and all that can go wrong between them."""

    it: World
    points: Points
    cgroups: frozenset[Path] = field(default_factory=lambda: frozenset(own_cgroups()))
    """Control groups below our own that were there before."""

    @property
    def fronts(self) -> list[FaultProxy]:
        """The network of each brain."""
        return [self.it.fronts[name] for name in BRAINS]

    @property
    def hands(self) -> Path:
        """Where the daemon's hands are."""
        return self.it.state / "hand" / "hands"

    def pids(self, name: str) -> list[int]:
        """Of a process, or of the `supervisor`s there are."""
        if name == "supervisor":
            return supervisors(self.hands)
        running = self.it.running[name]
        return [running.pid] if running.child.is_alive() else []

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to all of that name."""
        for pid in self.pids(name):
            send(pid, number)

    async def mend(self) -> None:
        """No point is armed, the network is whole, and every process runs."""
        hit = self.points.clear()
        for front in self.fronts:
            front.heal()
        for running in self.it.running.values():
            if running.pid in hit["kill"]:
                await running.kill()  # it is about to end by itself
        for name in (*self.it.running, "supervisor"):
            self.signal(name, signal.SIGCONT)
        if not self._alive("sessiond"):
            await self.it.sessiond()
        async with asyncio.TaskGroup() as group:
            for name in BRAINS:
                if not self._alive(name):
                    group.create_task(self.it.brain(name))
            if not self._alive("daemon"):
                group.create_task(self.it.daemon())

    def check_descriptors(self) -> None:
        """Links that ended have left no sockets."""
        for name in (*BRAINS, "daemon"):
            for pid in self.pids(name):
                count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
                assert count <= DESCRIPTORS, f"{name} has {count} descriptors"
        connections = sum(len(front.open) for front in self.fronts)
        assert connections <= CONNECTIONS, f"{connections} connections between daemon and brains"

    async def nothing_is_left(self) -> None:
        """Until no process, folder or socket of a hand is there."""
        try:
            async with asyncio.timeout(SECONDS):
                while self._left():  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"orphans: {self._left()}") from None

    def _left(self) -> list[str]:
        folders = [str(path) for path in self.hands.iterdir()]
        processes = [f"{pid} {command}" for pid, command in _marked(self.hands)]
        cgroups = [f"cgroup {path}" for path in own_cgroups() - self.cgroups]
        return folders + processes + cgroups + orphans(self.it.state / "hand")

    def _alive(self, name: str) -> bool:
        running: Running = self.it.running[name]
        return running.child.is_alive()


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _marked(hands: Path) -> Iterable[tuple[int, str]]:
    """Processes that have a hand's mark in their environment."""
    mark = hand_mark.every(hands).encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                yield int(entry.name), (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it ended meanwhile


@asynccontextmanager
async def link_world(
    state: Path,
    *,
    environ: Mapping[str, str] | None = None,
    model: str = "",
) -> AsyncIterator[LinkWorld]:
    """Everything running, and nothing wrong yet. `model`: as in `world`."""
    points = Points(state.parent / "faults")
    all_of = {
        **points.environ,
        "CARPAL_HAND_IDLE": "1",
        "CARPAL_HEARTBEAT": str(HEARTBEAT),
        "CARPAL_RECONNECT_MAX": "1",  # or a world with a fault every few seconds would rest
        **(environ or {}),
    }
    started = world(state, brains=BRAINS, term=TERM, environ=all_of, fronted=True, model=model)
    async with started as it:
        yield LinkWorld(it, points)
