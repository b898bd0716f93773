"""What every hand type with a shell takes as its config, and gives to what runs in it."""

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from carpal.errors import invalid, refuse
from carpal.status import Reason
from hands.builtin.bound import Bound
from hands.contract import Order
from hands.inside.schema import check
from hands.inside.shell import ALL_MAX, ALWAYS, ONE_MAX
from hands.isolation import disk, uids

WORKSPACE: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "description": "A folder of the daemon's machine to work in; without it, a fresh one.",
}
ENV: dict[str, Any] = {
    "type": "object",
    "description": "Environment variables of every call: names and strings.",
}
KEEP_FILES: dict[str, Any] = {
    "type": "boolean",
    "description": "Keep what each call makes of the workspace's files as blobs, by the log.",
}
IMAGE: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "description": "An image this machine's engine has; it needs bash, and nothing else.",
}
RUNTIME: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "description": "One of the engine's runtimes, such as runsc; without it, its own.",
}
INSIDE = {
    "folder": "/run/carpal",
    "workspace": "/workspace",
    "home": "/home/hand",
    "tmp": "/tmp",  # noqa: S108 - its own
}
"""Where a hand in a sandbox or a container sees what is its own."""
LEAST = {
    "memory_bytes": 64 * 1024 * 1024,
    "disk_bytes": 1024 * 1024,
    "processes": 16,
    "cpus": 0.05,
}
"""The limits there are, and what a hand needs for itself."""
_OWN_DISK = 24 * 1024 * 1024
"""Bytes for what the supervisor itself keeps, where the hand's disk is limited."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "CARPAL_"
"""How variables begin that are ours."""
_LOADERS = "LD_"
"""And those that would change what a program of ours is, where that gets them."""

_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
"""Variables that lead to the forwarder, in either case."""


def checked(
    schema: Mapping[str, Any],
    order: Order,
    *,
    forwarded: bool = True,
    apart: bool = False,
) -> Mapping[str, Any]:
    """The config. Raises INVALID_FIELD for what does not fit.

    `forwarded`: the hand's way out is its forwarder, and the variables that say so are ours.
    `apart`: no program of ours gets its `env`.
    """
    reserved = (_OURS,) if apart else (_OURS, _LOADERS)
    if problem := check(schema, dict(order.config), "config"):
        raise invalid(problem.field, problem.text)
    for name, value in order.config.get("env", {}).items():
        if not _NAME.fullmatch(name) or name.startswith(reserved):
            raise invalid(f"config.env.{name}", "is not a name a variable of the hand may have")
        if forwarded and name.lower() in _PROXIES:
            raise invalid(f"config.env.{name}", "is the forwarder's: what may be reached is egress")
        if not isinstance(value, str) or "\0" in value:
            raise invalid(f"config.env.{name}", "must be a string without NUL")
        if (size := _bytes(name, value)) > ONE_MAX:
            raise invalid(f"config.env.{name}", f"has {size} bytes; one may have {ONE_MAX}")
    size = sum(_bytes(name, value) for name, value in order.config.get("env", {}).items())
    if size > ALL_MAX // 2:
        raise invalid("config.env", f"has {size} bytes; all may have {ALL_MAX // 2}")
    return order.config


def _bytes(name: str, value: str) -> int:
    """As the kernel counts a variable."""
    return len(f"{name}={value}".encode("utf-8", "surrogatepass")) + 1


def check_limits(
    order: Order, kept: Collection[str], why: str, memory: float = float("inf")
) -> None:
    """Raises for limits that would be no more than a wish, naming `limits.X`.

    LIMIT_NOT_ENFORCEABLE for what is not among those `kept` here (`why` says the reason), or not
    together with what else is asked; INVALID_FIELD for less than a hand needs. `memory` is what
    a hand has when no memory is asked for.
    """
    if lacks := sorted(set(order.limits) - set(kept)):
        raise _not_kept(*lacks, why=why)
    for name, value in order.limits.items():
        if value < LEAST[name]:
            raise invalid(f"limits.{name}", f"must be at least {LEAST[name]}, as a hand needs")
    size = order.limits.get("disk_bytes", 0)
    if size and order.config.get("workspace") is not None:
        raise _not_kept("disk_bytes", why="the workspace is a folder of the machine's own disk")
    if size >= order.limits.get("memory_bytes", memory):
        raise _not_kept("disk_bytes", why="the disk is memory, and memory_bytes is not above it")


def _not_kept(*names: str, why: str) -> Exception:
    fields = [f"limits.{name}" for name in names]
    return refuse(
        Reason.LIMIT_NOT_ENFORCEABLE,
        f"{', '.join(fields)}: cannot be kept here: {why}",
        action="ask for another, leave the limit out, or use another hand type or machine",
        field=fields[0],
    )


def terms(order: Order, start_limit: float) -> list[str]:
    """Arguments of every supervisor."""
    return [
        *("--hand-id", order.hand_id, "--deadline", str(order.orphan_deadline)),
        *("--start-limit", str(start_limit)),
        *(["--keep-files"] if order.config.get("keep_files") else []),
    ]


def gid(uid: int, workspace: Bound | None) -> int:
    """The group of a hand that is `uid`: a bound workspace's own, but never root's."""
    if os.geteuid() != 0:
        return os.getegid()
    group = workspace.found.st_gid if workspace else 0
    return group or uid


def settle(
    order: Order, workspace: Bound | None, first: int = uids.FIRST, count: int = uids.COUNT
) -> int:
    """Make home and workspace in the hand's folder, and give all to the hand's user; says which.

    A user of its own is one of the `count` from `first` on.

    A bound workspace makes the hand its owner's: what a hand writes there is theirs. Root's is
    refused, for then the hand would be root, unless anyone may write there.
    """
    if workspace is None:
        uid = uids.own(order.folder, first, count)
    elif os.geteuid() == 0:
        found = workspace.found
        uid = found.st_uid
        if uid == 0 and found.st_mode & stat.S_IWOTH:
            uid = uids.own(order.folder, first, count)
        elif uid == 0:
            raise invalid(
                "config.workspace",
                f"{str(workspace.path)!r} belongs to root, and a hand never runs as root; "
                "give the folder to another user",
            )
        uids.give(order.folder, uid)
    else:
        uid = os.geteuid()
    for name in ("home", "tmp", "workspace"):
        (order.folder / name).mkdir(mode=0o755, exist_ok=True)
        uids.give(order.folder / name, uid)
    return uid


def files(order: Order, uid: int, gid: int) -> Path:
    """Where the hand's home, tmp and workspace are: on a disk of its own, where that is limited.

    Needs root then. What is mounted goes with the folder: `folders.remove`.
    """
    size = int(order.limits.get("disk_bytes", 0))
    if not size:
        return order.folder
    disk.mount(order.folder, _OWN_DISK, uid, gid)
    made = order.folder / "disk"
    made.mkdir()
    disk.mount(made, size, uid, gid)
    for name in ("home", "tmp", "workspace"):
        (made / name).mkdir(mode=0o755)
        os.chown(made / name, uid, gid)
    return made


def environment(order: Order) -> dict[str, str]:
    """Of every call in a sandbox or a container, besides its PATH."""
    return {
        **ALWAYS,
        "USER": "hand",
        "LOGNAME": "hand",
        "SHELL": "/bin/bash",
        "HOME": INSIDE["home"],
        "TMPDIR": INSIDE["tmp"],
        **order.config.get("env", {}),
    }
