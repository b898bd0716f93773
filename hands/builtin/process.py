"""The process hand: commands on this machine, in a sandbox wherever one can be made.

In the sandbox a hand has its own processes, network, user and folders, and sees
of the machine only its programs. Where none can be made, a hand runs as the
daemon's user and says so; what it does keep then: its processes are its own and
all end with it, its folder goes with it, and the daemon's environment does not
reach it.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carpal import hand_mark
from hands.builtin import common, egress, limited, process_start
from hands.builtin.bound import bound
from hands.builtin.limited import LimitedHand
from hands.builtin.sandboxes import PROCESSES, Sandboxes
from hands.builtin.supervised import PULSE, Pulse
from hands.builtin.supervisor_socket import results_left
from hands.contract import (
    Description,
    HandLost,
    Health,
    Order,
    Provisioned,
    ProvisionFailed,
    Result,
    Tool,
)
from hands.inside import tree
from hands.inside.call import START_LIMIT
from hands.inside.toolset import TOOLS
from hands.isolation import bwrap, cgroups, probe
from hands.isolation.cgroups import Group

SANDBOX = ("auto", "off", "required")
"""Whether hands of this machine get a sandbox: where one can be made, never, or else no hand."""
_CONFIG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "workspace": common.WORKSPACE,
        "env": common.ENV,
        "egress": egress.SCHEMA,
        "keep_files": common.KEEP_FILES,
    },
    "additionalProperties": False,
}


class ProcessType:
    """Hands that are folders and processes of this machine."""

    def __init__(
        self,
        pulse: Pulse = PULSE,
        start_limit: float = START_LIMIT,
        sandbox: str = "auto",
    ) -> None:
        """`pulse`: how a supervisor that hangs is noticed; `start_limit`: a call that does.

        `sandbox` is one of `SANDBOX`; ValueError for another word.
        """
        self._pulse = pulse
        self._start_limit = start_limit
        self.sandbox = sandbox

    @property
    def sandbox(self) -> str:
        """Whether hands get one: one of `SANDBOX`."""
        return self._sandbox

    @sandbox.setter
    def sandbox(self, word: str) -> None:
        if word not in SANDBOX:
            raise ValueError(f"sandbox is {word!r}, none of {', '.join(SANDBOX)}")
        self._sandbox = word
        self._sandboxes = Sandboxes(None if word != "off" else "the machine's owner turned it off")

    async def prepare(self) -> None:
        """Find out about the sandbox, which takes a moment; what is not known now is later."""
        with contextlib.suppress(probe.NotKnown):
            await self._sandboxes.why_not()

    def _refusal(self, why: str) -> str:
        """Why there is no hand at all without a sandbox; empty when there is one."""
        if why and self.sandbox == "required":
            return f"a sandbox is required here, and there is none: {why}"
        if why and self.sandbox == "auto" and os.geteuid() == 0:
            return (
                f"no sandbox can be made: {why}. As root a hand without one could do anything to "
                "this machine; install and allow bubblewrap, or say sandbox = off"
            )
        return ""

    def describe(self) -> Description:
        """Shell and files, in a fresh folder or in one of the owner's."""
        isolated = self._sandboxes.there
        how = "in a sandbox" if isolated else "without a sandbox"
        return Description(
            type="process",
            description=f"A shell and files on the daemon's machine, {how}.",
            tools=[Tool(name, text, schema) for name, (text, schema) in TOOLS.items()],
            config_schema=_CONFIG_SCHEMA,
            capabilities=(
                *("adopt", "shell", "files", "mounts", "save", "tunnel"),
                *(["isolated"] if isolated else []),
            ),
        )

    async def probe(self) -> Health:
        """Ready wherever there is a bash, and a sandbox if one is required."""
        try:
            why = await self._sandboxes.why_not()
        except probe.NotKnown as error:
            return Health(ready=False, reason=str(error))
        if shutil.which("bash", path=bwrap.PATH if not why else process_start.path()) is None:
            return Health(ready=False, broken=True, reason="bash is not installed; install it")
        if refusal := self._refusal(why):
            return Health(ready=False, broken=True, reason=refusal)
        return Health(
            ready=True, not_enforceable=sorted(set(common.LEAST) - self._sandboxes.enforceable())
        )

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Start a supervisor over the workspace."""
        try:
            why = await self._sandboxes.why_not()
        except probe.NotKnown as error:
            raise ProvisionFailed(str(error)) from error
        if refusal := self._refusal(why):
            raise ProvisionFailed(refusal)
        common.checked(_CONFIG_SCHEMA, order, forwarded=not why)
        self._check_limits(order, why)
        allowed = egress.rules(order.config)
        workspace = bound(order)
        limits = {"processes": PROCESSES, **order.limits}
        group = Group()
        if why:
            egress.refuse_without_sandbox(order.config)
            progress("starting the supervisor")
            place = workspace.path if workspace else _made(order.folder / "workspace")
            await process_start.plain(order, place, self._start_limit, hand_mark.mark(order.folder))
            note = f"The workspace is {place}; file tools take paths relative to it."
        else:
            progress("making the sandbox")
            group = cgroups.make(cgroups.name_of(order.folder), limits, self._sandboxes.bases)
            await process_start.sandboxed(
                order,
                workspace,
                self._start_limit,
                mark=hand_mark.mark(order.folder),
                group=group,
                allowed=allowed,
            )
            note = (
                f"The workspace is {bwrap.WORKSPACE}; file tools take paths relative to it. "
                f"{egress.note(allowed)}"
            )
        try:
            hand = await self._connect(order.folder, group, order.limits.get("memory_bytes", 0))
            hand.disk_bytes = int(order.limits.get("disk_bytes", 0))
        except HandLost as error:
            raise ProvisionFailed(str(error)) from error
        if not why:
            try:
                if workspace:
                    workspace.check(hand.pid)
                hand.forwarder = egress.provide(order.folder, order.hand_id, allowed)
            except BaseException:
                await hand.detach()
                raise
        state = {
            "pid": hand.pid,
            "start": hand.start,
            "memory_bytes": hand.memory_bytes,
            "disk_bytes": hand.disk_bytes,
            "sandbox": not why,
            **egress.kept(allowed),
            "group": {name: str(path) for name, path in group.folders.items()},
        }
        return Provisioned(hand, state, note, self._not_enforced(why))

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> LimitedHand:
        """Connect to the very supervisor that was started."""
        pid, start = int(state["pid"]), int(state["start"])
        if not tree.alive(pid, start):
            raise HandLost("its supervisor is gone")
        group = Group({name: Path(path) for name, path in state.get("group", {}).items()})
        memory = state.get("memory_bytes", 0)
        hand = await self._connect(folder, group, memory, (pid, start))
        hand.disk_bytes = int(state.get("disk_bytes", 0))
        if state.get("sandbox"):
            try:
                hand.forwarder = egress.adopt(folder, hand_id, state)
            except BaseException:
                await hand.detach()
                raise
        return hand

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Kill what is in the hand's group or carries its mark; what it wrote stays to be read."""
        return await limited.reap(folder)

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """What its supervisor wrote down when it ended by itself."""
        return await asyncio.to_thread(results_left, folder)

    async def _connect(
        self, folder: Path, group: Group, memory: float, known: tuple[int, int] | None = None
    ) -> LimitedHand:
        return await LimitedHand.limited(
            folder, self._pulse, group=group, memory_bytes=memory, known=known
        )

    def _check_limits(self, order: Order, why: str) -> None:
        """Raises LIMIT_NOT_ENFORCEABLE for a limit that would be no more than a wish."""
        reason = f"it has no sandbox: {why}" if why else "the daemon may not set them"
        common.check_limits(order, self._sandboxes.enforceable(), reason)

    def _not_enforced(self, why: str) -> tuple[str, ...]:
        if why:
            return (
                f"runs as the daemon's user, without a sandbox: {why}",
                egress.NETWORK_OPEN,
            )
        return self._sandboxes.not_enforced()


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder
