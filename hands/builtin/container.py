"""The container hand: commands in a container of an engine on this machine, hardened.

Its supervisor is the container's first process, run by a Python that we bring along, and is
reached by a socket in the hand's folder: so calls go on, and can be taken up again, whatever the
engine does. No network, no capabilities, nothing of the machine but the hand's own folder.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from carpal import hand_mark
from carpal.errors import invalid, refuse
from carpal.status import Reason
from hands.builtin import common, container_box, container_python, egress
from hands.builtin.bound import Bound, bound
from hands.builtin.container_box import Hosting
from hands.builtin.container_engine import About, Box, Engine, EngineGone, EngineRefused, find
from hands.builtin.limited import LimitedHand
from hands.builtin.supervised import PULSE, Pulse
from hands.builtin.supervisor_socket import NoSocket, results_left
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
from hands.isolation import cgroups, uids
from hands.isolation.cgroups import Group

_IMAGE = re.compile(
    r"(?:sha256:)?[0-9a-f]{64}|(?:(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,128})?"
)
"""What engines take for the name of one, or for its id."""
_Answer = TypeVar("_Answer")

log = logging.getLogger(__name__)

_READY_LIMIT = 30.0
"""Seconds for a container to be ready; it takes half of one."""
_NO_SOCKET = (
    "runsc keeps to itself the socket by which a hand is reached, unless the engine runs it with "
    "--host-uds=all, which those before 2023 do not know"
)
_LOOK = 0.25
"""Seconds between looks whether a container that is not ready still runs."""
_AGAIN = 0.01
"""Seconds between tries to connect: nothing announces that a supervisor listens."""
_ASKED_AT_ONCE = 8
"""Questions to the engine; they have threads of their own, for an engine may hang."""
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "image": common.IMAGE,
        "runtime": common.RUNTIME,
        "workspace": common.WORKSPACE,
        "env": common.ENV,
        "egress": egress.SCHEMA,
        "keep_files": common.KEEP_FILES,
    },
    "required": ["image"],
    "additionalProperties": False,
}

_NO_START = "does not start: it is for another architecture than this machine's, or lacks libraries"


class ContainerType:
    """Hands that are containers."""

    hand: type[LimitedHand] = LimitedHand

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
        self._threads = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="engine")

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
            capabilities=("adopt", "shell", "files", "mounts", "save", "tunnel", "isolated"),
        )

    async def probe(self) -> Health:
        """Ready when an engine of this machine answers."""
        try:
            about = await self._ask(self._engine.about)
        except EngineGone as error:
            return Health(ready=False, broken=True, reason=f"{error}; start it, or set DOCKER_HOST")
        except EngineRefused as error:
            return Health(ready=False, broken=True, reason=f"the engine refuses: {error}")
        return Health(ready=True, not_enforceable=container_box.cannot(about))

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Make a container and wait for its supervisor."""
        try:
            return await self._make(order, progress)
        except EngineGone as error:
            action = "start it on the daemon's machine, or set the daemon's DOCKER_HOST"
            raise ProvisionFailed(str(error), action) from error
        except EngineRefused as error:
            raise ProvisionFailed(f"the engine refuses: {error}") from error

    async def _make(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        config = common.checked(_SCHEMA, order)
        rules = egress.rules(config)
        workspace = bound(order)
        if workspace and ":" in str(workspace.path):
            raise invalid("config.workspace", "must be without ':', by which engines end a path")
        about = await self._ask(self._engine.about)
        hosting = self.hosting(order)
        container_box.check_limits(order, about, hosting)
        volumes = await self._check_image(config, about)
        progress("bringing a Python along")
        below = self._pythons or order.folder.parent.parent / "container-python"
        python = await asyncio.to_thread(container_python.bring, below)
        # Its own remains as well, should one of its id not have been removed.
        await self._ask(self._clear, order.folder.resolve())
        limit = self._start_limit
        box, lacks = container_box.box(order, workspace, about, python, limit, hosting=hosting)
        box = container_box.without_volumes(box, volumes)
        progress("starting the container")
        container, warnings = await self._start(box, order)
        hand = await self._connect(order.folder, container, box)
        hand.disk_bytes = int(order.limits.get("disk_bytes", 0))
        try:
            if workspace:
                workspace.check(hand.pid)
            hand.follow(_group(hand.pid))
            hand.forwarder = egress.provide(order.folder, order.hand_id, rules)
        except BaseException:
            await hand.detach()
            raise
        state = {
            "container": container,
            "pid": hand.pid,
            "start": hand.start,
            "memory_bytes": hand.memory_bytes,
            "disk_bytes": hand.disk_bytes,
        }
        note = f"{_note(workspace, box)} {egress.note(rules)}"
        return Provisioned(hand, {**state, **egress.kept(rules)}, note, [*lacks, *warnings])

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> LimitedHand:
        """Connect to the very supervisor that was started; its engine may be away meanwhile."""
        pid, start = int(state["pid"]), int(state["start"])
        if not tree.alive(pid, start):
            raise HandLost("its container is gone")
        hand = await self.hand.limited(
            folder,
            self._pulse,
            group=_group(pid),
            memory_bytes=state.get("memory_bytes", 0),
            known=(pid, start),
        )
        hand.disk_bytes = int(state.get("disk_bytes", 0))
        try:
            hand.forwarder = egress.adopt(folder, hand_id, state)
        except HandLost:
            await hand.detach()
            raise
        return hand

    def hosting(self, order: Order) -> Hosting | None:
        """What runs a hand's tools; None for its supervisor."""
        return None

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Remove the hand's container; with the engine away, kill what runs in it."""
        try:
            killed = await self._ask(self._clear, folder.resolve())  # noqa: ASYNC240 - it is ours
            self.removed(folder)
        except (EngineGone, EngineRefused) as error:
            log.warning("container not removed yet", extra={"hand_id": hand_id, "why": str(error)})
            killed = await asyncio.to_thread(
                tree.kill_marked, hand_mark.mark(folder), uids.anothers(folder)
            )
        return killed

    def removed(self, folder: Path) -> None:
        """The container of the hand in `folder` is no more."""

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """What its supervisor wrote down when it ended by itself."""
        return await asyncio.to_thread(results_left, folder)

    # Its parts.

    async def _check_image(self, config: Mapping[str, Any], about: About) -> list[str]:
        """The image's volumes. Raises INVALID_FIELD."""
        image, runtime = config["image"], config.get("runtime")
        if not _IMAGE.fullmatch(image):
            raise invalid("config.image", f"{image!r} is no name of an image")
        if runtime and runtime not in about.runtimes:
            there = ", ".join(sorted(about.runtimes)) or "none"
            raise invalid("config.runtime", f"{runtime!r} is none of the engine's: {there}")
        volumes = await self._ask(self._engine.volumes, image)
        if volumes is None:
            program = "podman" if about.podman else "docker"
            raise invalid(
                "config.image",
                f"{image!r} is not on this machine; fetch it there: {program} pull {image}",
            )
        return volumes

    async def _start(self, box: Box, order: Order) -> tuple[str, list[str]]:
        """Its id, and what the engine warns of."""
        container, warnings = await self._ask(self._engine.create, box)
        if warnings and order.limits:
            raise refuse(
                Reason.LIMIT_NOT_ENFORCEABLE,
                f"the engine warns: {'; '.join(warnings)}",
                action="leave the limit out, or mend what the engine warns of",
            )
        try:
            await self._ask(self._engine.start, container)
        except EngineRefused as error:
            if '"bash"' in str(error):
                why = f"{box.image!r} has no bash, which a hand's calls need"
                raise invalid("config.image", why) from error
            raise
        return container, [f"the engine warns: {warning}" for warning in warnings]

    async def _connect(self, folder: Path, container: str, box: Box) -> LimitedHand:
        """The hand, once its supervisor listens. Raises ProvisionFailed."""
        loop = asyncio.get_running_loop()
        ends, look = loop.time() + _READY_LIMIT, loop.time() + _LOOK
        while loop.time() < ends:
            try:
                return await self.hand.limited(
                    folder, self._pulse, group=Group(), memory_bytes=box.memory or 0
                )
            except NoSocket as error:
                raise ProvisionFailed(
                    f"{error}: the image's own bash, perhaps, put it there"
                ) from error
            except HandLost:
                await asyncio.sleep(_AGAIN)
            if loop.time() > look:
                look = loop.time() + _LOOK
                if not await self._ask(self._engine.runs, container):
                    words = _last_words(folder)
                    if words is None:  # a shell opens it before all else
                        raise invalid("config.image", f"the bash of {box.image!r} {_NO_START}")
                    raise ProvisionFailed(f"the container ended at once: {words}")
        why = f": {_NO_SOCKET}" if "runsc" in (box.runtime or "") else ""
        raise ProvisionFailed(f"the container was not ready after {_READY_LIMIT:g} s{why}")

    def _clear(self, folder: Path) -> int:
        """Remove the container of the hand in `folder`; and those of hands whose folder is gone.

        Theirs was released while the engine was away, say, and nobody else would remove them.
        """
        own, orphans = [], []
        hands = f"{container_box.HANDS}={folder.parent}"
        for container, (name, labels) in self._engine.labelled(hands).items():
            its = Path(labels.get(container_box.FOLDER, ""))
            if name != container_box.name_of(its):
                continue  # containers inherit labels of their image, but no names
            if its == folder:
                own.append(container)
            elif not its.exists():
                orphans.append(container)
        for container in own:
            self._engine.remove(container)
        for container in orphans:
            try:
                self._engine.remove(container, insist=False)
            except (EngineGone, EngineRefused) as error:  # one that sticks is not in others' way
                told = {"container": container, "why": str(error)}
                log.warning("container of a hand that is gone not removed yet", extra=told)
        return len(own)

    async def _ask(self, question: Callable[..., _Answer], *asked: Any) -> _Answer:
        """In one of the threads that wait for the engine, and for nothing else."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, question, *asked)


def _group(pid: int) -> Group:
    """The container's own control groups, as the kernel says of its first process."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
        found = cgroups.parse(mounts, Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return Group()
    return Group({name: base.folder for name, base in found.items()})


def _note(workspace: Bound | None, box: Box) -> str:
    place = common.INSIDE["workspace"]
    bound = f" (it is {workspace.path} of the machine)" if workspace else ""
    return (
        f"A container of the image {box.image}. The workspace is {place}{bound}; file tools take "
        "paths relative to it. It, the home folder and /tmp can be written."
    )


def _last_words(folder: Path) -> str | None:
    """What its start wrote down last; None when nobody opened where it would be."""
    try:
        handle = os.open(folder / "supervisor.log", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        return "it said nothing"
    with os.fdopen(handle, "rb") as file:
        text = file.read(64 * 1024).decode("utf-8", "replace").strip()
    return text.rpartition("\n")[2] or "it said nothing"
