"""A hand type of ours whose tools a Python class runs, inside the process hand's sandbox.

A hand is a supervisor with a host, as a plugin's is, and both are in a sandbox: a user id, network,
processes and folders of its own, of the machine only its programs, and the daemon's Python with
our own code to read. Its way out is the forwarder. What the class does, and what it starts, may be
misled or hostile: the daemon believes it nothing, and checks calls by what the type said itself.

There is no such hand without a sandbox, whatever the machine's owner says of process hands: they
have shells, which people know the meaning of.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carpal import hand_mark
from carpal.errors import invalid
from hands.builtin import common, egress, limited, process_start
from hands.builtin.bound import bound
from hands.builtin.plugin import PROVISION_LIMIT, PluginHand, end, make
from hands.builtin.process_start import Inside
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
from hands.isolation import bwrap, cgroups, probe
from hands.isolation.cgroups import Group

NAMESPACES = "namespaces"
"""Where a type's config has it: what a hand runs makes a sandbox of its own."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What such a type is."""

    description: Description
    """Its config is given to the class as it came, and may have `workspace`, `env`, `egress`."""
    target: str
    """`MODULE:CLASS`, of a `hands.plugins.hosted.Hosted` below `hands`."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each tool may take."""
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Limits of a hand for which nothing else is asked; those that cannot be kept here are left."""
    least: Mapping[str, float] = field(default_factory=dict)
    """What a hand needs for itself: a limit below is refused."""
    unready: Callable[[], str] = lambda: ""
    """Why no hand can be made on this machine, besides for want of a sandbox; asked often."""
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: Sequence[tuple[Path, str]] = ()
    """What it needs of the machine, besides its programs."""
    namespaces: bool = False
    """What it runs makes a sandbox of its own, as browsers do."""
    apart: bool = False
    """The config's `env` is of what the class starts, which gives it that, and of nothing else."""
    provision_limit: float = PROVISION_LIMIT
    """Seconds to make a hand."""
    home_max: int = 0
    """Bytes of its home, which is memory, as what strangers write goes there; 0 for the disk's."""
    listed: Callable[[Path, Result], Sequence[Tool]] = lambda _folder, _made: ()
    """A hand's own tools, of what making it gave. Raises ProvisionFailed."""


def check_least(kind: Kind, order: Order) -> None:
    """Raises INVALID_FIELD for a limit below what a hand needs."""
    for name, least in kind.least.items():
        if order.limits.get(name, least) < least:
            type_name = kind.description.type
            raise invalid(f"limits.{name}", f"must be at least {least:g} for a {type_name} hand")


def without_env(order: Order) -> Order:
    """The order as what is ours in the hand is started: without variables that are another's."""
    config = {name: value for name, value in order.config.items() if name != "env"}
    return dataclasses.replace(order, config=config)


class SandboxedType:
    """Makes hands of one kind."""

    def __init__(self, kind: Kind, pulse: Pulse = PULSE) -> None:
        """`pulse`: how a supervisor that hangs is noticed."""
        self._kind = kind
        self._pulse = pulse
        self._sandboxes = Sandboxes()

    async def prepare(self) -> None:
        """Find out about the sandbox, which takes a moment; what is not known now is later."""
        with contextlib.suppress(probe.NotKnown):
            await self._sandboxes.why_not()

    def describe(self) -> Description:
        """What the kind is."""
        return self._kind.description

    async def probe(self) -> Health:
        """Ready where a sandbox can be made, and what the class needs is there."""
        try:
            why = await self._why_not()
        except probe.NotKnown as error:
            return Health(ready=False, reason=str(error))
        if why:
            return Health(ready=False, broken=True, reason=why)
        kept = self._sandboxes.enforceable()
        return Health(ready=True, not_enforceable=sorted(set(common.LEAST) - kept))

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Make a sandbox with a supervisor and a host in it, and have the class make the hand."""
        try:
            why = await self._why_not()
        except probe.NotKnown as error:
            raise ProvisionFailed(str(error)) from error
        if why:
            raise ProvisionFailed(why, "see what it says, and `carpal hand check` on the machine")
        common.checked(self._kind.description.config_schema, order, apart=self._kind.apart)
        kept = self._sandboxes.enforceable()
        common.check_limits(order, kept, "the daemon may not set them")
        check_least(self._kind, order)
        allowed = egress.rules(order.config)
        workspace = bound(order)
        progress("making the sandbox")
        defaults = {name: most for name, most in self._kind.defaults.items() if name in kept}
        limits = {"processes": PROCESSES, **defaults, **order.limits}
        name = cgroups.name_of(order.folder)
        group = await asyncio.to_thread(cgroups.make, name, limits, self._sandboxes.bases)
        within = dataclasses.replace(order, limits=limits)  # what is memory is a part of that
        await process_start.sandboxed(
            without_env(within) if self._kind.apart else within,
            workspace,
            START_LIMIT,
            mark=hand_mark.mark(order.folder),
            group=group,
            allowed=allowed,
            inside=self._inside(order),
        )
        try:
            hand = await self._connect(order.folder, group, limits.get("memory_bytes", 0))
        except HandLost as error:
            raise ProvisionFailed(str(error)) from error
        try:
            if workspace:
                workspace.check(hand.pid)
            hand.disk_bytes = int(order.limits.get("disk_bytes", 0))
            hand.forwarder = egress.provide(order.folder, order.hand_id, allowed)
            name = self._kind.description.type
            made = await make(hand, name, order, progress, self._kind.provision_limit)
            tools = self._kind.listed(order.folder, made)
        except BaseException:
            await end(hand)
            raise
        state = {
            "pid": hand.pid,
            "start": hand.start,
            "memory_bytes": hand.memory_bytes,
            "disk_bytes": hand.disk_bytes,
            **egress.kept(allowed),
            "group": {name: str(path) for name, path in group.folders.items()},
        }
        return Provisioned(hand, state, made.content, self._sandboxes.not_enforced(), tools)

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> PluginHand:
        """Connect to the very supervisor that was started; its host never noticed."""
        pid, start = int(state["pid"]), int(state["start"])
        if not tree.alive(pid, start):
            raise HandLost("its supervisor is gone")
        group = Group({name: Path(path) for name, path in state.get("group", {}).items()})
        hand = await self._connect(folder, group, state.get("memory_bytes", 0), (pid, start))
        hand.disk_bytes = int(state.get("disk_bytes", 0))
        try:
            hand.forwarder = egress.adopt(folder, hand_id, state)
        except BaseException:
            await hand.detach()
            raise
        return hand

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Kill what is in the hand's group or carries its mark."""
        return await limited.reap(folder)

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """What its supervisor wrote down when it ended by itself."""
        return await asyncio.to_thread(results_left, folder)

    async def _why_not(self) -> str:
        """Why there is no hand; empty when there is. Raises `probe.NotKnown`."""
        kind = self._kind.description.type
        if why := await self._sandboxes.why_not():
            return f"a {kind} hand needs a sandbox, and there is none: {why}"
        return self._kind.unready() or bwrap.unreadable()

    def _inside(self, order: Order) -> Inside:
        run = (*("run", self._kind.target, "{line}"), bwrap.WORKSPACE, order.hand_id, bwrap.FOLDER)
        python = {"PYTHONPATH": bwrap.CODE, "PYTHONUNBUFFERED": "1"}
        return Inside(
            (bwrap.hosting_python(), "-P", "-m", "hands.plugins.host", *run),
            {**python, **self._kind.environment},
            self._kind.readable,
            self._kind.namespaces or order.config.get(NAMESPACES) is True,
            self._kind.home_max,
        )

    async def _connect(
        self, folder: Path, group: Group, memory: float, known: tuple[int, int] | None = None
    ) -> PluginHand:
        hand = await PluginHand.limited(
            folder, self._pulse, group=group, memory_bytes=memory, known=known
        )
        assert isinstance(hand, PluginHand)
        hand.limits = self._kind.limits
        return hand
