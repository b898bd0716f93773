"""The container hand: commands in a container of an engine on this machine, hardened.

Its supervisor is the container's first process, run by a Python that we bring along, and is
reached by a socket in the hand's folder: so calls go on, and can be taken up again, whatever the
engine does. No network, no capabilities, nothing of the machine but the hand's own folder.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carpal.errors import invalid, refuse
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
from hands.builtin import common, container_python, egress
from hands.builtin.container_engine import About, Box, Engine, EngineGone, EngineRefused, find
from hands.builtin.limited import LimitedHand
from hands.builtin.process import mark
from hands.builtin.supervised import PULSE, Pulse, results_left
from hands.inside import tree
from hands.inside.call import START_LIMIT
from hands.inside.toolset import TOOLS
from hands.isolation import cgroups, disk
from hands.isolation.cgroups import Group

log = logging.getLogger(__name__)

MIB = 1024 * 1024
MEMORY = 2048 * MIB
"""Bytes a hand may take when no limit is asked for."""
PROCESSES = 1024
_LEAST = {"memory_bytes": 64 * MIB, "disk_bytes": 16 * MIB, "processes": 16, "cpus": 0.05}
"""Below these not even the supervisor runs."""
_SCRATCH = 256 * MIB
"""Bytes of /tmp, out of the hand's memory."""
_READY_LIMIT = 30.0
"""Seconds for a container to be ready; it takes half of one."""
_LOOK = 0.25
"""Seconds between looks whether a container that is not ready still runs."""
_AGAIN = 0.01
_FOLDER = "carpal.folder"
_HANDS = "carpal.hands"
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "image": {
            "type": "string",
            "minLength": 1,
            "description": "An image this machine's engine has; it needs bash, and nothing else.",
        },
        "runtime": {
            "type": "string",
            "minLength": 1,
            "description": "One of the engine's runtimes, such as runsc; without it, its own.",
        },
        "workspace": common.WORKSPACE,
        "env": common.ENV,
        "egress": egress.SCHEMA,
    },
    "required": ["image"],
    "additionalProperties": False,
}


class ContainerType:
    """Hands that are containers."""

    def __init__(
        self,
        engine: str | None = None,
        *,
        pythons: Path | None = None,
        pulse: Pulse = PULSE,
        start_limit: float = START_LIMIT,
    ) -> None:
        """`engine` is its socket's address; without it, DOCKER_HOST's or the first there is.

        `pythons` is where what is brought along is kept; without it, beside the hands.
        """
        self._given = engine
        self._pythons = pythons
        self._known: Engine | None = None
        self._pulse = pulse
        self._start_limit = start_limit

    @property
    def _engine(self) -> Engine:
        address = self._given or find()
        if self._known is None or self._known.address != address:
            self._known = Engine(address)
        return self._known

    def describe(self) -> Description:
        """Shell and files, in an image of the owner's."""
        return Description(
            type="container",
            description="A shell and files in a container of the daemon's machine.",
            tools=[Tool(name, text, schema) for name, (text, schema) in TOOLS.items()],
            config_schema=_SCHEMA,
            capabilities=("adopt", "shell", "files", "mounts", "save", "isolated"),
        )

    async def probe(self) -> Health:
        """Ready when an engine of this machine answers."""
        try:
            about = await asyncio.to_thread(self._engine.about)
        except EngineGone as error:
            return Health(ready=False, broken=True, reason=f"{error}; start it, or set DOCKER_HOST")
        except EngineRefused as error:
            return Health(ready=False, broken=True, reason=f"the engine refuses: {error}")
        return Health(ready=True, not_enforceable=_cannot(about))

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Make a container and wait for its supervisor."""
        try:
            return await self._make(order, progress)
        except BaseException as error:
            await self.reap(order.hand_id, order.folder)
            if isinstance(error, EngineGone):
                raise ProvisionFailed(str(error)) from error
            if isinstance(error, EngineRefused):
                raise ProvisionFailed(f"the engine refuses: {error}") from error
            raise

    async def _make(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        config = common.checked(_SCHEMA, order)
        rules = egress.rules(config)
        workspace = common.bound(order)
        about = await asyncio.to_thread(self._engine.about)
        _check_limits(order.limits, about)
        if workspace and "disk_bytes" in order.limits:
            raise refuse(
                Reason.LIMIT_NOT_ENFORCEABLE,
                "limits.disk_bytes: the workspace is a folder of the machine's own disk",
                action="leave the limit or the workspace out",
                field="limits.disk_bytes",
            )
        await self._check_image(config, about)
        progress("bringing a Python along")
        below = self._pythons or order.folder.parent.parent / "container-python"
        python = await asyncio.to_thread(container_python.bring, below)
        await asyncio.to_thread(self._clear, order.folder.parent)
        box = _box(order, workspace, about, python, self._start_limit)
        progress("starting the container")
        container = await self._start(box, order)
        hand = await self._connect(order.folder, container, box)
        hand.follow(_group(hand.pid))
        hand.forwarder = egress.provide(order.folder, order.hand_id, rules)
        state = {
            "container": container,
            "pid": hand.pid,
            "start": hand.start,
            "memory_bytes": hand.memory_bytes,
        }
        note = f"{_note(workspace, box)} {egress.note(rules)}"
        return Provisioned(hand, {**state, **egress.kept(rules)}, note, _not_enforced(about))

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> LimitedHand:
        """Connect to the very supervisor that was started; its engine may be away meanwhile."""
        pid, start = int(state["pid"]), int(state["start"])
        if not tree.alive(pid, start):
            raise HandLost("its container is gone")
        hand = await LimitedHand.limited(
            folder,
            self._pulse,
            group=_group(pid),
            memory_bytes=state.get("memory_bytes", 0),
        )
        if (hand.pid, hand.start) != (pid, start):
            await hand.detach()
            raise HandLost("another supervisor listens in its place")
        try:
            hand.forwarder = egress.adopt(folder, hand_id, state)
        except HandLost:
            await hand.detach()
            raise
        return hand

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Remove the hand's container; with the engine away, kill what runs in it."""
        try:
            its = folder.resolve()  # noqa: ASYNC240 - of a path that is ours
            killed = await asyncio.to_thread(self._clear, its.parent, its)
        except (EngineGone, EngineRefused) as error:
            log.warning("container not removed yet", extra={"hand_id": hand_id, "why": str(error)})
            killed = await asyncio.to_thread(tree.kill_marked, mark(folder))
        await asyncio.to_thread(disk.unmount_below, folder)
        return killed

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """What its supervisor wrote down when it ended by itself."""
        return results_left(folder)

    # Its parts.

    async def _check_image(self, config: Mapping[str, Any], about: About) -> None:
        image, runtime = config["image"], config.get("runtime")
        if runtime and runtime not in about.runtimes:
            there = ", ".join(sorted(about.runtimes)) or "none"
            raise invalid("config.runtime", f"{runtime!r} is none of the engine's: {there}")
        if not await asyncio.to_thread(self._engine.has_image, image):
            program = "podman" if about.podman else "docker"
            raise invalid(
                "config.image",
                f"{image!r} is not on this machine; fetch it there: {program} pull {image}",
            )

    async def _start(self, box: Box, order: Order) -> str:
        container, warnings = await asyncio.to_thread(self._engine.create, box)
        if warnings and order.limits:
            raise refuse(
                Reason.LIMIT_NOT_ENFORCEABLE,
                f"the engine warns: {'; '.join(warnings)}",
                action="leave the limit out, or mend what the engine warns of",
            )
        try:
            await asyncio.to_thread(self._engine.start, container)
        except EngineRefused as error:
            if '"bash"' in str(error):
                why = f"{box.image!r} has no bash, which a hand's calls need"
                raise invalid("config.image", why) from error
            raise
        return container

    async def _connect(self, folder: Path, container: str, box: Box) -> LimitedHand:
        """The hand, once its supervisor listens. Raises ProvisionFailed."""
        loop = asyncio.get_running_loop()
        ends, look = loop.time() + _READY_LIMIT, loop.time() + _LOOK
        while loop.time() < ends:
            try:
                return await LimitedHand.limited(
                    folder, self._pulse, group=Group(), memory_bytes=box.memory or 0
                )
            except HandLost:
                await asyncio.sleep(_AGAIN)
            if loop.time() > look:
                look = loop.time() + _LOOK
                if not await asyncio.to_thread(self._engine.runs, container):
                    raise ProvisionFailed(f"the container ended at once: {_last_words(folder)}")
        raise ProvisionFailed(f"the container was not ready after {_READY_LIMIT:g} s")

    def _clear(self, hands: Path, folder: Path | None = None) -> int:
        """Remove the container of the hand in `folder`; and those of hands whose folder is gone.

        Theirs was released while the engine was away, say, and nobody else would remove them.
        """
        removed = 0
        for container, labels in self._engine.labelled(f"{_HANDS}={hands.resolve()}").items():
            its = Path(labels.get(_FOLDER, ""))
            if its == folder or not its.exists():
                self._engine.remove(container)
                removed += its == folder
        return removed


def _group(pid: int) -> Group:
    """The container's own control groups, as the kernel says of its first process."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
        found = cgroups.parse(mounts, Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return Group()
    return Group({name: base.folder for name, base in found.items()})


def _cannot(about: About) -> list[str]:
    cannot = {"memory_bytes", "processes", "cpus"} - about.can_limit
    return sorted(cannot if os.geteuid() == 0 else {*cannot, "disk_bytes"})


def _check_limits(limits: Mapping[str, float], about: About) -> None:
    known = {"memory_bytes", "disk_bytes", "processes", "cpus"}
    for name in sorted(limits):
        if name in _cannot(about) or name not in known:
            raise refuse(
                Reason.LIMIT_NOT_ENFORCEABLE,
                f"limits.{name}: this machine cannot enforce it for containers",
                action="leave the limit out, or use another machine",
                field=f"limits.{name}",
            )
        if limits[name] < _LEAST[name]:
            raise invalid(f"limits.{name}", f"must be at least {_LEAST[name]:g}")
    if limits.get("disk_bytes", 0) >= limits.get("memory_bytes", MEMORY):
        raise invalid("limits.disk_bytes", "must be less than memory_bytes: the disk is memory")


def _box(
    order: Order, workspace: Path | None, about: About, python: Path, start_limit: float
) -> Box:
    uid = common.settle(order, workspace)
    user, user_mode = _user(uid, about)
    files = common.files(order, uid, uid)
    inside = common.INSIDE
    arguments = [
        *("--folder", inside["folder"], "--workspace", inside["workspace"], "--stay"),
        *("--hand-id", order.hand_id, "--deadline", str(order.orphan_deadline)),
        *("--start-limit", str(start_limit), *egress.ARGUMENTS),
        *(["--sealed"] if os.geteuid() == 0 else []),
    ]
    # By bash, so that an image without it is known at once; and what goes wrong is written down.
    log = f"{inside['folder']}/supervisor.log"
    shell = ["bash", "-c", f'exec "$@" 2>>{log}', "carpal", *container_python.command(arguments)]
    name, _, value = mark(order.folder).partition("=")
    folder = order.folder.resolve()
    limits = order.limits
    return Box(
        name=f"carpal-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]}",
        image=order.config["image"],
        command=shell,
        user=user,
        user_mode=user_mode,
        environment={
            **egress.environment(egress.rules(order.config)),
            **common.environment(order),
            name: value,
        },
        labels={
            "carpal.hand": order.hand_id,
            _FOLDER: str(folder),
            _HANDS: str(folder.parent),
        },
        binds={
            folder: (inside["folder"], True),
            workspace or files / "workspace": (inside["workspace"], True),
            files / "home": (inside["home"], True),
            **({files / "tmp": (inside["tmp"], True)} if files != order.folder else {}),
            python: (container_python.PLACE, False),
        },
        memory=_limit(limits, "memory_bytes", MEMORY, about),
        processes=_limit(limits, "processes", PROCESSES, about),
        cpus=min(limits["cpus"], os.cpu_count() or 1) if "cpus" in limits else None,
        scratch=_SCRATCH if files == order.folder else 0,
        runtime=order.config.get("runtime"),
    )


def _limit(limits: Mapping[str, float], name: str, usual: int, about: About) -> int | None:
    return int(limits.get(name, usual)) if name in about.can_limit else None


def _user(uid: int, about: About) -> tuple[str, str | None]:
    """Who runs in the container, to be the hand's user outside; and how users are mapped."""
    if about.rootless:
        # Nobody but the daemon's own user can write its folders.
        return (f"{uid}:{os.getegid()}", "keep-id") if about.podman else ("0:0", None)
    if about.remapped is not None:
        # The engine's own mapping cannot reach the hand's user; ours keeps hands apart instead.
        return f"{uid}:{uid}", "host"
    gid = uid if os.geteuid() == 0 else os.getegid()
    return f"{uid}:{gid}", None


def _note(workspace: Path | None, box: Box) -> str:
    place = common.INSIDE["workspace"]
    bound = f" (it is {workspace} of the machine)" if workspace else ""
    return (
        f"A container of the image {box.image}. The workspace is {place}{bound}; file tools take "
        "paths relative to it. It, the home folder and /tmp can be written."
    )


def _not_enforced(about: About) -> list[str]:
    told = []
    if os.geteuid() != 0:
        told.append("runs as the daemon's own user, as all its hands do")
    if cannot := [name for name in ("memory_bytes", "processes") if name not in about.can_limit]:
        told.append(f"no limit on {' and '.join(cannot)}")
    if not about.seccomp:
        told.append("the engine filters no system calls")
    return told


def _last_words(folder: Path) -> str:
    try:
        handle = os.open(folder / "supervisor.log", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return "it said nothing"
    with os.fdopen(handle, "rb") as file:
        text = file.read(64 * 1024).decode("utf-8", "replace").strip()
    return text.rpartition("\n")[2] or "it said nothing"
