"""Looks at a browser's processes from the outside, and ends a page's that floods the others.

It asks the browser for nothing that a flood would hold up: the machine says how large each process
is and how busy, and a signal ends one.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from hands.browser.chromium import Error
from hands.browser.flood import Floods, Seen
from hands.inside import tree

_EVERY = 0.25
_SOON = 5.0
"""Seconds after the browser has taken in what came before an end, in which a page that crashes is
taken to be that which was ended."""
_SETTLES_MAX = 15.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
_ARGUMENTS_MAX = 4096


@dataclass(eq=False)
class Guard:
    """One browser's. `ask` has an answer as soon as the browser has taken in what came before."""

    ask: Callable[[], Awaitable[None]]
    _floods: Floods = field(default_factory=Floods)
    _ended: float = 0.0
    """When it ended a process last; 0 for never."""
    _since: float = 0.0
    """When the browser had taken in what came before that; 0 when it has not."""
    _asked: float = 0.0
    """When it was asked what it has not answered; 0 when it has."""
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    _kinds: dict[tree.Process, str] = field(default_factory=dict)

    async def watch(self) -> None:
        """Until it is cancelled, or the browser has gone."""
        asking = asyncio.create_task(self._asking())
        try:
            while not asking.done():
                await asyncio.sleep(_EVERY)  # nothing tells how large a process is
                if (pid := self._floods.look(self._look())) is not None:
                    self._kill(pid)
        finally:
            asking.cancel()
            await asyncio.wait({asking})

    def end_busiest(self) -> bool:
        """End the page's process that is busiest; whether there was one."""
        self._floods.look(self._look())
        pid = self._floods.end()
        if pid is not None:
            self._kill(pid)
        return pid is not None

    def ended(self) -> bool:
        """It ended a process just now: a page that crashes is of that."""
        return bool(self._ended) and (not self._since or time.monotonic() - self._since < _SOON)

    async def settled(self) -> bool:
        """Wait until the browser has taken in what came before this; whether it did soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLES_MAX):
                for _ in range(2):  # that which it is asked now may be older
                    self._answered.clear()
                    await self._answered.wait()
                return True
        return False

    async def _asking(self) -> None:
        with contextlib.suppress(Error):
            while True:
                self._asked = time.monotonic()
                await self.ask()
                if self._asked > self._ended and not self._since:
                    self._since = time.monotonic()
                self._asked = 0.0
                self._answered.set()
                await asyncio.sleep(_EVERY)  # more often would be work of its own

    def _kill(self, pid: int) -> None:
        self._ended, self._since = time.monotonic(), 0.0
        if process := tree.find(pid):
            tree.send(process, signal.SIGKILL)

    def _look(self) -> Seen:
        now = time.monotonic()
        held: dict[int, int] = {}
        worked: dict[int, float] = {}
        used: dict[int, float] = {}
        for each in tree.everyone().values():
            with contextlib.suppress(OSError, ValueError, IndexError):
                kind = self._kind(each)
                if not kind:
                    continue
                stat = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
                spent = (int(stat[11]) + int(stat[12])) / _TICKS
                if kind == "shared":
                    worked[each.pid], held[each.pid] = spent, int(stat[21]) * _PAGE
                else:
                    used[each.pid] = spent
        waited = now - self._asked if self._asked else 0.0
        return Seen(now, held, worked, used, waited)

    def _kind(self, process: tree.Process) -> str:
        """What a process is: a page's, one of those that all share, or neither."""
        if process not in self._kinds:
            if len(self._kinds) > 1000:  # pages begin and end
                self._kinds.clear()
            with Path(f"/proc/{process.pid}/cmdline").open("rb") as file:
                said = file.read(_ARGUMENTS_MAX).replace(b"\0", b" ").split(b" ")
            if not said[0]:
                return ""  # it is just being made
            types = [each for each in said if each.startswith(b"--type=")]
            if b"--type=zygote" in types:
                return ""  # it may become a page's
            own = process.pid == os.getpid() or said[0].endswith((b"/node", b"/chromium"))
            self._kinds[process] = (
                "renderer" if b"--type=renderer" in types else "shared" if own and not types else ""
            )
        return self._kinds[process]
