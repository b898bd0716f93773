"""The people in a hand, as its supervisor has them: a process for each tunnel, beside the calls.

They end with their daemon's connection, as with their own, and with them all
that they started.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hands.inside import person, runner, tree
from hands.inside.call import NEVER, Place

MOST = 64
"""At once in one hand."""
_CHANGING = frozenset({"shell", "copy"})
"""Kinds that may change files; a connection does what the hand's own server does."""
_GRACE = 1.0
"""Seconds for one to end by itself, once the daemon has ended its connection."""


@dataclass
class _Entrance:
    running: runner.Runner
    changes: bool
    """It may change files."""
    kill_at: float = NEVER


class Entrances:
    """Every tunnel's process."""

    def __init__(self, place: Place, emit: Callable[[dict[str, Any]], None]) -> None:
        self._place = place
        self._emit = emit
        self._inside: dict[str, _Entrance] = {}

    def enter(self, message: Mapping[str, Any]) -> None:
        """Start one; it connects to the daemon by itself."""
        tunnel_id = message["tunnel_id"]
        shell = self._place.shell
        cwd = shell.cwd if os.access(shell.cwd, os.X_OK) else self._place.workspace
        setting = person.Setting(
            self._place.folder, self._place.workspace, cwd, shell.for_a_person()
        )
        body = person.body(setting, message["kind"], message["options"], message["socket"])
        if len(self._inside) >= MOST or tunnel_id in self._inside:
            self._left(tunnel_id, f"there are {len(self._inside)} tunnels in the hand")
            return
        try:
            started = self._place.children.fork(body)
        except OSError as error:
            self._left(tunnel_id, f"could not start: {(error.strerror or 'failed').lower()}")
            return
        os.close(started.report)  # it says all to the daemon
        self._inside[tunnel_id] = _Entrance(started, message["kind"] in _CHANGING)
        self._count()

    def leave(self, tunnel_id: str) -> None:
        """It is to be over; `left` is said once it is."""
        if entrance := self._inside.get(tunnel_id):
            entrance.kill_at = min(entrance.kill_at, time.monotonic() + _GRACE)
        else:
            self._left(tunnel_id)

    def drop(self) -> None:
        """The daemon is gone: whoever it let in is out."""
        for tunnel_id in list(self._inside):
            self.leave(tunnel_id)

    def due(self) -> float:
        """When `tick` has something to do."""
        return min((each.kill_at for each in self._inside.values()), default=NEVER)

    def tick(self, now: float) -> None:
        """Do what is due, and say which ended."""
        for tunnel_id, entrance in list(self._inside.items()):
            pid, start, _ = entrance.running
            if now >= entrance.kill_at:
                tree.kill_tree(pid, start)
                self._place.children.reap()
                entrance.kill_at = now + runner.END_LIMIT  # the kernel may not let it end yet
            status = self._place.children.ended(pid)
            if status is None:
                continue
            if status != 0:
                self._place.children.kill_strays()
            del self._inside[tunnel_id]
            self._count()
            if entrance.changes:
                self._place.history = None  # what a person did is no call's doing
            self._left(tunnel_id)

    def _count(self) -> None:
        self._place.people = sum(each.changes for each in self._inside.values())

    def _left(self, tunnel_id: str, problem: str = "") -> None:
        self._emit({"event": "left", "tunnel_id": tunnel_id, "problem": problem})
