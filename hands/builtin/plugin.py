"""A hand type that somebody wrote against `hands/api.py`: none of its code runs in the daemon.

What it is, a process is asked once, at the daemon's start; which units it has, again and again, and
to reset one a process too. Each of its hands is a supervisor with a process of its own. So it may
be slow, crash, flood, lie or hang, and no other hand learns of it. It is code that the machine's
owner installed: it has no sandbox, and may do what the daemon's user may. The limits there are keep
its mistakes from the others, not its malice.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from carpal import hand_mark
from carpal.errors import invalid
from hands import said_folder
from hands.builtin import common, limited, process_start
from hands.builtin.kept_units import KeptUnits
from hands.builtin.limited import LimitedHand
from hands.builtin.supervised import PULSE, Pulse
from hands.builtin.supervisor_socket import results_left
from hands.contract import (
    Call,
    Description,
    Event,
    HandLost,
    Health,
    Order,
    Outcome,
    Output,
    Provisioned,
    ProvisionFailed,
    Result,
    Step,
    Unit,
)
from hands.inside import tree
from hands.inside.call import START_LIMIT, TIME_LIMIT
from hands.inside.schema import check
from hands.isolation import cgroups
from hands.isolation.cgroups import Group
from hands.plugins import asked, told

PROVISION = ".provision"
"""As the hand's process calls the call that makes it."""
PROVISION_LIMIT = 300.0
"""Seconds to make a hand: an emulator boots in a minute or two."""
_PROCESSES = 1024
"""Processes and threads a hand has at most where nothing else is asked for: a fork bomb's end."""
_WHY_MAX = 1000
"""Characters, the last, of why it could not make a hand."""
_LOOK_AGAIN = 10.0
"""Seconds for which the answer of a probe counts."""
_LISTEN = 0.25
"""Seconds between looks at what a hand says unasked."""


class PluginHand(LimitedHand):
    """One hand of such a type."""

    limits: Mapping[str, float] = {}
    """Seconds that each tool may take."""
    _told_in = Path()
    """The file of the last event."""

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        """As every hand's, within the tool's own time when the call says none."""
        limit = call.within(self.limits.get(call.tool, TIME_LIMIT))
        async for step in super().execute(Call(call.call_id, call.tool, call.input, limit)):
            yield step

    async def events(self) -> AsyncIterator[Event]:
        """What its process says unasked; the last of it once that ended."""
        folder = self.folder / said_folder.FOLDER
        while True:
            over = self._lost.done()
            found = await asyncio.to_thread(lambda: list(said_folder.said(folder)))
            for path, event in found:
                self._told_in = path
                yield event
            if over and not found:
                return
            if over:
                continue
            # Also after some, however many: a hand may say one a second.
            await asyncio.wait({self._lost}, timeout=_LISTEN)

    async def heard(self, event_id: str) -> None:
        """The last that was said: its file is of no more use."""
        await asyncio.to_thread(said_folder.forget, self._told_in)


class PluginType:
    """Makes hands of one class."""

    def __init__(
        self,
        name: str,
        target: str,
        pulse: Pulse = PULSE,
        *,
        limit: float = asked.LIMIT,
        provision_limit: float = PROVISION_LIMIT,
    ) -> None:
        """`target` is `MODULE:CLASS`; `limit` is in seconds, for it to say what it is."""
        self._name = name
        self._target = target
        self._pulse = pulse
        self._limit = limit
        self._provision_limit = provision_limit
        self._told = told.broken(name, "it was not asked what it is yet")
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._bases: dict[str, cgroups.Base] = {}
        self._units = KeptUnits(lambda: asked.units(target, limit))
        self._resets: set[asyncio.Task[None]] = set()

    async def prepare(self) -> None:
        """Ask it what it is."""
        self._bases = await asyncio.to_thread(cgroups.bases)
        self._told = await asked.ask(self._name, self._target, self._limit)
        self._asked_at = _now()
        if "units" in self._told.description.capabilities:
            await self._units.open()

    async def close(self) -> None:
        """Ask no more; what was asked ends."""
        await self._units.close()
        if self._resets:
            await asyncio.wait(self._resets)

    @property
    def unnamed(self) -> str:
        """Why it is not known which units there are now; empty when it is."""
        problem = self._units.problem
        return f"which units it has is not known: {problem}" if problem else ""

    def units(self) -> Sequence[Unit]:
        """Those that it named last."""
        return self._units.named()

    async def reset(self, unit_id: str) -> None:
        """Have it reset one, in a process that ends when this is cancelled."""
        reset = asyncio.create_task(asked.reset(self._target, unit_id))
        self._resets.add(reset)
        reset.add_done_callback(self._resets.discard)
        try:
            await asyncio.shield(reset)
        except asyncio.CancelledError:
            reset.cancel()
            await asyncio.wait({reset})
            raise

    def describe(self) -> Description:
        """What it said at the daemon's start; of one that said nothing of use, why."""
        return self._told.description

    async def probe(self) -> Health:
        """What it says now; nothing it does takes longer than the limit."""
        if self._told.broken:
            return Health(ready=False, broken=True, reason=self._why())
        async with self._asking:
            if _now() - self._asked_at > _LOOK_AGAIN:
                now = await asked.ask(self._name, self._target, self._limit)
                unready, self._asked_at = now.unready, _now()
            else:
                unready = self._told.unready
            # What it is stays what it said first: each call is checked against that.
            self._told = told.Told(self._told.description, unready, self._told.limits)
        if unready := unready or self.unnamed:
            return Health(ready=False, broken=True, reason=unready)
        return Health(ready=True, not_enforceable=sorted(set(common.LEAST) - self._enforceable()))

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Start its processes, and have it make the hand."""
        if self._told.broken:
            raise ProvisionFailed(self._why(), "mend the hand type, and restart the daemon")
        schema = self._told.description.config_schema
        if problem := check(schema, dict(order.config), "config"):
            raise invalid(problem.field, problem.text)
        common.check_limits(
            order,
            self._enforceable(),
            "a plugin has no disk of its own"
            if "disk_bytes" in order.limits
            else "the daemon may not set them",
        )
        workspace = order.folder / "workspace"
        for name in ("home", "tmp", "workspace"):
            (order.folder / name).mkdir()
        limits = {"processes": _PROCESSES, **order.limits}
        name = cgroups.name_of(order.folder)
        group = await asyncio.to_thread(cgroups.make, name, limits, self._bases)
        about = (str(workspace), order.hand_id, "", order.unit)
        line = asked.command("run", self._target, "{line}", *about)
        await process_start.outside(
            order,
            ["--workspace", str(workspace), "--host", json.dumps(line)],
            environment=_environment(order),
            start_limit=START_LIMIT,
            joins=group.joins,
        )
        try:
            hand = await self._connect(order.folder, group, order.limits.get("memory_bytes", 0))
        except HandLost as error:
            raise ProvisionFailed(str(error)) from error
        try:
            made = await make(hand, self._name, order, progress, self._provision_limit)
        except BaseException:
            await end(hand)
            raise
        state = {
            "pid": hand.pid,
            "start": hand.start,
            "memory_bytes": hand.memory_bytes,
            "group": {name: str(path) for name, path in group.folders.items()},
        }
        note = made.content
        return Provisioned(hand, state, note, ("it has no sandbox: it is code of this machine's",))

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> PluginHand:
        """Connect to the very supervisor that was started; its process never noticed."""
        pid, start = int(state["pid"]), int(state["start"])
        if not tree.alive(pid, start):
            raise HandLost("its supervisor is gone")
        group = Group({name: Path(path) for name, path in state.get("group", {}).items()})
        return await self._connect(folder, group, state.get("memory_bytes", 0), (pid, start))

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Kill what is in the hand's group or carries its mark."""
        return await limited.reap(folder)

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """What its supervisor wrote down when it ended by itself."""
        return await asyncio.to_thread(results_left, folder)

    async def _connect(
        self, folder: Path, group: Group, memory: float, known: tuple[int, int] | None = None
    ) -> PluginHand:
        hand = await PluginHand.limited(
            folder, self._pulse, group=group, memory_bytes=memory, known=known
        )
        assert isinstance(hand, PluginHand)
        hand.limits = self._told.limits
        return hand

    def _why(self) -> str:
        return f"the hand type {self._name!r} ({self._target}) is of no use: {self._told.unready}"

    def _enforceable(self) -> set[str]:
        return {name for name, controller in cgroups.LIMITS.items() if controller in self._bases}


async def make(
    hand: PluginHand, name: str, order: Order, progress: Callable[[str], None], limit: float
) -> Result:
    """Have its host make it; what the model is to know. Raises ProvisionFailed, naming the type."""
    call = Call(PROVISION, PROVISION, order.config, limit)
    said = b""
    try:
        async with _kept(hand, order.orphan_deadline):
            async for step in hand.execute(call):
                if isinstance(step, Output):
                    *lines, said = (said + step.data).split(b"\n")
                    for line in lines:
                        progress(line.decode("utf-8", "replace"))
                elif isinstance(step, Result):
                    result = step
    except HandLost as error:
        raise ProvisionFailed(f"{name}: {error}") from error
    await hand.acknowledge(PROVISION)
    if result.outcome is not Outcome.OK:
        raise ProvisionFailed(f"{name}: {result.content[-_WHY_MAX:]}")
    return result


def _environment(order: Order) -> dict[str, str]:
    name, _, value = hand_mark.mark(order.folder).partition("=")
    return {
        **asked.environment(),
        "HOME": str(order.folder / "home"),
        "TMPDIR": str(order.folder / "tmp"),
        name: value,
    }


@contextlib.asynccontextmanager
async def _kept(hand: PluginHand, deadline: float) -> AsyncIterator[None]:
    """Keep a hand that is being made from its orphan deadline; how long that takes is bounded."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(deadline / 3)
            await hand.contact()

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


async def end(hand: PluginHand) -> None:
    """End one that is no good."""
    with contextlib.suppress(HandLost):  # what is left of it is reaped
        await hand.release()


def _now() -> float:
    return asyncio.get_running_loop().time()
