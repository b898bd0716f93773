"""The process hand: a folder of this machine and commands run as the daemon's user.

It isolates nothing, and says so. What it does keep: its processes are its own
and all end with it, its folder goes with it, and the daemon's environment does
not reach it.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carpal.errors import invalid, refuse
from carpal.fault_points import FOLDER
from carpal.status import Reason
from hands.api import (
    Description,
    HandLost,
    Health,
    Order,
    Provisioned,
    ProvisionFailed,
    Result,
    Tool,
)
from hands.builtin.supervised import PULSE, Pulse, SupervisedHand, results_left
from hands.inside import tree
from hands.inside.call import START_LIMIT
from hands.inside.schema import check
from hands.inside.shell import ALWAYS
from hands.inside.toolset import TOOLS

_SUPERVISOR = Path(__file__).resolve().parents[1] / "supervisor.py"
_READY_LIMIT = 10.0
"""Seconds for a supervisor to be ready; it takes a tenth of one."""
_CONFIG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"workspace": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
_NOT_ENFORCED = ("runs as the daemon's user, without a sandbox",)


class ProcessType:
    """Hands that are folders and processes of this machine."""

    def __init__(self, pulse: Pulse = PULSE, start_limit: float = START_LIMIT) -> None:
        """`pulse`: how a supervisor that hangs is noticed; `start_limit`: a call that does."""
        self._pulse = pulse
        self._start_limit = start_limit

    def describe(self) -> Description:
        """Shell and files, in a fresh folder or in one of the owner's."""
        return Description(
            type="process",
            description="A shell and files on the daemon's machine; no sandbox.",
            tools=[Tool(name, text, schema) for name, (text, schema) in TOOLS.items()],
            config_schema=_CONFIG_SCHEMA,
            capabilities=("adopt", "shell", "files"),
        )

    async def probe(self) -> Health:
        """Ready wherever there is a bash."""
        if shutil.which("bash", path=_path()) is None:
            return Health(ready=False, broken=True, reason="bash is not installed; install it")
        limits = ("memory_bytes", "disk_bytes", "processes", "cpus")
        return Health(ready=True, not_enforceable=limits)

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Start a supervisor over the workspace."""
        if order.limits:
            names = ", ".join(sorted(order.limits))
            raise refuse(
                Reason.LIMIT_NOT_ENFORCEABLE,
                f"a process hand cannot enforce {names}",
                action="leave the limit out, or use another hand type",
            )
        workspace = _workspace(order)
        for name in ("home", "tmp"):
            (order.folder / name).mkdir(exist_ok=True)
        progress("starting the supervisor")
        await _start(order, workspace, self._start_limit)
        try:
            hand = await SupervisedHand.connect(order.folder, self._pulse)
        except HandLost as error:
            await self.reap(order.hand_id, order.folder)
            raise ProvisionFailed(str(error)) from error
        note = f"The workspace is {workspace}; file tools take paths relative to it."
        state = {"pid": hand.pid, "start": hand.start}
        return Provisioned(hand, state, note, _NOT_ENFORCED)

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> SupervisedHand:
        """Connect to the very supervisor that was started."""
        pid, start = int(state["pid"]), int(state["start"])
        if not tree.alive(pid, start):
            raise HandLost("its supervisor is gone")
        hand = await SupervisedHand.connect(folder, self._pulse)
        if (hand.pid, hand.start) != (pid, start):
            await hand.detach()
            raise HandLost("another supervisor listens in its place")
        return hand

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Kill what carries the hand's mark: its supervisor, and what it started."""
        return await asyncio.to_thread(tree.kill_marked, mark(folder))

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """What its supervisor wrote down when it ended by itself."""
        return results_left(folder)


def mark(folder: Path) -> str:
    """What the processes of the hand in `folder` have in their environment, and no others.

    Not the hand's id alone: whoever names hands must not choose whose processes
    end, and one machine may have several daemons.
    """
    return f"CARPAL_HAND={folder.resolve()}"


def _workspace(order: Order) -> Path:
    if problem := check(_CONFIG_SCHEMA, dict(order.config)):
        raise invalid(f"config.{problem.field}", problem.text)
    bound = order.config.get("workspace")
    if bound is None:
        fresh = order.folder / "workspace"
        fresh.mkdir(exist_ok=True)
        return fresh
    workspace = Path(bound)
    if not workspace.is_absolute() or not workspace.is_dir():
        raise invalid("config.workspace", f"{bound!r} is not an absolute path of a folder here")
    return workspace


def _path() -> str:
    return os.environ.get("PATH") or os.defpath


def _environment(order: Order) -> dict[str, str]:
    """All that a hand gets: nothing of the daemon's own but its PATH and who it runs as."""
    user = {name: os.environ[name] for name in ("USER", "LOGNAME", FOLDER) if name in os.environ}
    name, _, value = mark(order.folder).partition("=")
    return {
        **ALWAYS,
        **user,
        "PATH": _path(),
        "SHELL": "/bin/bash",
        "HOME": str(order.folder / "home"),
        "TMPDIR": str(order.folder / "tmp"),
        name: value,
    }


async def _start(order: Order, workspace: Path, start_limit: float) -> None:
    """Start the supervisor; it is ready, and on its own, when this returns."""
    command = [
        *(sys.executable, "-I", "-S", str(_SUPERVISOR)),
        *("--folder", str(order.folder), "--workspace", str(workspace)),
        *("--hand-id", order.hand_id, "--deadline", str(order.orphan_deadline)),
        *("--start-limit", str(start_limit)),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(order),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_READY_LIMIT):
            ready, errors = await process.communicate()
    except TimeoutError as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        message = f"the supervisor was not ready after {_READY_LIMIT:g} s"
        raise ProvisionFailed(message) from error
    if process.returncode != 0 or "pid" not in json.loads(ready or b"{}"):
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProvisionFailed(f"the supervisor did not start: {last or 'it said nothing'}")
