"""What a container of a hand is: its user, places, environment and limits, and what it lacks."""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from carpal import hand_mark
from carpal.errors import invalid
from hands.builtin import common, container_python, egress
from hands.builtin.bound import Bound
from hands.builtin.container_engine import About, Box
from hands.contract import Order
from hands.isolation import bwrap, uids

MIB = 1024 * 1024
MEMORY = 2048 * MIB
"""Bytes a hand may take when no limit is asked for."""
PROCESSES = 1024
FOLDER = "carpal.folder"
"""A label: the hand's folder."""
HANDS = "carpal.hands"
"""A label: the folder of all its daemon's hands."""
_SCRATCH = 256 * MIB
"""Bytes of /tmp, out of the hand's memory."""
_MAPPED = range(10_000, 60_000)
"""Users of hands in an engine's mapping, which has at least 65,536: above those of images."""


@dataclass(frozen=True, slots=True)
class _User:
    """Who a hand is."""

    uid: int
    """On the machine."""
    gid: int
    inside: str
    """`uid:gid` in the container."""
    mode: str | None
    """How the engine is to map users: None for its own way."""

    @property
    def unmapped(self) -> bool:
        """An engine that maps users does not map this one."""
        return self.mode == "host"


@dataclass(frozen=True, slots=True)
class Hosting:
    """What runs a hand's tools in its container, where that is not its supervisor itself."""

    command: Sequence[str]
    readable: Mapping[Path, str]
    """What that needs of the machine, and where it is seen."""
    memory: int
    """Bytes the hand may take when no limit is asked for."""


def check_limits(order: Order, about: About, hosting: Hosting | None = None) -> None:
    """Raises LIMIT_NOT_ENFORCEABLE or INVALID_FIELD for what cannot be asked here."""
    kept = common.LEAST.keys() - set(cannot(about))
    why = "the engine and this daemon may not set them"
    common.check_limits(order, kept, why, _memory(hosting))


def cannot(about: About) -> list[str]:
    """The limits that are not kept here."""
    lacks = {"memory_bytes", "processes", "cpus"} - about.can_limit
    return sorted(lacks if os.geteuid() == 0 else {*lacks, "disk_bytes"})


def box(
    order: Order,
    workspace: Bound | None,
    about: About,
    python: Path,
    start_limit: float,
    *,
    hosting: Hosting | None = None,
) -> tuple[Box, list[str]]:
    """The container of a hand, whose folder is made ready for it; and what it does not keep."""
    user = _user(order, workspace, about)
    files = common.files(order, user.uid, user.gid)
    inside = common.INSIDE
    arguments = [
        *("--folder", inside["folder"], "--workspace", inside["workspace"], "--stay"),
        *common.terms(order, start_limit),
        *egress.ARGUMENTS,
        *(["--sealed"] if os.geteuid() == 0 else []),
        *(["--host", json.dumps(hosting.command)] if hosting else []),
    ]
    # By bash, so that an image without it is known at once; and what goes wrong is written down.
    log = f"{inside['folder']}/supervisor.log"
    shell = ["bash", "-c", f'exec "$@" 2>>{log}', "carpal", *container_python.command(arguments)]
    name, _, value = hand_mark.mark(order.folder).partition("=")
    folder = order.folder.resolve()
    limits = order.limits
    made = Box(
        name=name_of(folder),
        image=order.config["image"],
        command=shell,
        user=user.inside,
        user_mode=user.mode,
        environment={
            **egress.environment(egress.rules(order.config)),
            **common.environment(order),
            name: value,
        },
        labels={"carpal.hand": order.hand_id, FOLDER: str(folder), HANDS: str(folder.parent)},
        binds={
            folder: (inside["folder"], True),
            workspace.path if workspace else files / "workspace": (inside["workspace"], True),
            files / "home": (inside["home"], True),
            **({files / "tmp": (inside["tmp"], True)} if files != order.folder else {}),
            python: (container_python.PLACE, False),
            **(_readable(hosting) if hosting else {}),
            **_named(folder, user),
        },
        memory=_limit(order, "memory_bytes", _memory(hosting), about),
        processes=_limit(order, "processes", PROCESSES, about),
        cpus=min(limits["cpus"], os.cpu_count() or 1) if "cpus" in limits else None,
        scratch=_SCRATCH if files == order.folder else 0,
        runtime=order.config.get("runtime"),
    )
    return made, _not_enforced(about, user)


def without_volumes(box: Box, volumes: Sequence[str]) -> Box:
    """Nothing is written where the image wants disks of its own: they would have no limit.

    Raises INVALID_FIELD for an image that wants them around what a hand needs there.
    """
    ours = {place for place, _ in box.binds.values()} | {"/tmp"}  # noqa: S108 - its own
    closed = []
    for volume in volumes:
        place = Path("/", os.path.normpath(f"/{volume}").lstrip("/"))
        if str(place) in ours:
            continue  # ours is there
        if any(place in Path(each).parents or Path(each) in place.parents for each in _taken(ours)):
            why = f"{box.image!r} has a volume at {volume!r}, around or in what is the hand's"
            raise invalid("config.image", why)
        closed.append(str(place))
    return replace(box, closed=closed)


def _taken(ours: Collection[str]) -> list[str]:
    kernels = ("/proc", "/sys", "/dev")
    return [*ours, *kernels, *(f"{place}/itself" for place in kernels)]


def name_of(folder: Path) -> str:
    """What the container of the hand in `folder` is called, and no other."""
    return f"carpal-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]}"


def _named(folder: Path, user: _User) -> dict[Path, tuple[str, bool]]:
    """The hand's user has a name: programs ask for it, and images do not know it."""
    uid, _, gid = user.inside.partition(":")
    texts = zip(("passwd", "group"), bwrap.passwd(int(uid), int(gid)), strict=True)
    places = {}
    for name, text in texts:
        path = folder / name
        path.write_text(text)
        path.chmod(0o644)
        places[path] = (f"/etc/{name}", False)
    return places


def _readable(hosting: Hosting) -> dict[Path, tuple[str, bool]]:
    return {path: (place, False) for path, place in hosting.readable.items()}


def _memory(hosting: Hosting | None) -> int:
    return hosting.memory if hosting else MEMORY


def _limit(order: Order, name: str, usual: int, about: About) -> int | None:
    return int(order.limits.get(name, usual)) if name in about.can_limit else None


def _user(order: Order, workspace: Bound | None, about: About) -> _User:
    """Who runs in the container; gives the hand's folder to them."""
    mapped = about.remapped if os.geteuid() == 0 else None
    first, count = (mapped + _MAPPED.start, len(_MAPPED)) if mapped else (uids.FIRST, uids.COUNT)
    uid = common.settle(order, workspace, first, count)
    gid = common.gid(uid, workspace)
    if about.rootless:
        # Nobody but the daemon's own user can write its folders.
        if about.podman:
            return _User(uid, gid, f"{uid}:{gid}", "keep-id")
        return _User(uid, gid, "0:0", None)
    if mapped and first <= uid < first + count:
        # The owner's rights are enough: its group need not be one that is mapped.
        return _User(uid, gid, f"{uid - mapped}:{uid - mapped}", None)
    # A workspace's owner, or a daemon's user, is not among those that are mapped.
    return _User(uid, gid, f"{uid}:{gid}", "host" if about.remapped is not None else None)


def _not_enforced(about: About, user: _User) -> list[str]:
    told = []
    if os.geteuid() != 0:
        told.append("runs as the daemon's own user, as all its hands do")
    if user.unmapped:
        told.append("the engine's mapping of users is off: it does not reach the folders' owner")
    if lacks := [name for name in ("memory_bytes", "processes") if name not in about.can_limit]:
        told.append(f"no limit on {' and '.join(lacks)}")
    if not about.seccomp:
        told.append("the engine filters no system calls")
    return told
