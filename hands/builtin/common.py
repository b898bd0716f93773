"""What every hand type with a shell takes as its config, and gives to what runs in it."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carpal.errors import invalid
from hands.api import Order
from hands.inside.schema import check
from hands.inside.shell import ALWAYS
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
INSIDE = {
    "folder": "/run/carpal",
    "workspace": "/workspace",
    "home": "/home/hand",
    "tmp": "/tmp",  # noqa: S108 - its own
}
"""Where a hand in a sandbox or a container sees what is its own."""
_OWN_DISK = 24 * 1024 * 1024
"""Bytes for what the supervisor itself keeps, where the hand's disk is limited."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = ("CARPAL_", "LD_")
"""Prefixes of variables that are ours, or that would change what our own program is."""


def checked(schema: Mapping[str, Any], order: Order) -> Mapping[str, Any]:
    """The config. Raises INVALID_FIELD for what does not fit."""
    if problem := check(schema, dict(order.config), "config"):
        raise invalid(problem.field, problem.text)
    for name, value in order.config.get("env", {}).items():
        if not _NAME.fullmatch(name) or name.startswith(_RESERVED):
            raise invalid(f"config.env.{name}", "is not a name a variable of the hand may have")
        if not isinstance(value, str) or "\0" in value:
            raise invalid(f"config.env.{name}", "must be a string without NUL")
    return order.config


def bound(order: Order) -> Path | None:
    """The owner's folder that was asked for as the workspace."""
    given = order.config.get("workspace")
    if given is None:
        return None
    workspace = Path(given)
    if not workspace.is_absolute() or not workspace.is_dir():
        raise invalid("config.workspace", f"{given!r} is not an absolute path of a folder here")
    return workspace.resolve()


def settle(order: Order, workspace: Path | None) -> int:
    """Make home and workspace in the hand's folder, and give all to the hand's user; says which.

    A bound workspace makes the hand its owner's: what a hand writes there is theirs. Root's is
    refused, for then the hand would be root, unless anyone may write there.
    """
    if workspace is None:
        uid = uids.own(order.folder)
    elif os.geteuid() == 0:
        found = workspace.stat()
        uid = found.st_uid
        if uid == 0 and found.st_mode & stat.S_IWOTH:
            uid = uids.own(order.folder)
        elif uid == 0:
            raise invalid(
                "config.workspace",
                f"{str(workspace)!r} belongs to root, and a hand never runs as root; "
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

    Needs root then. What is mounted is unmounted by `disk.unmount_below`.
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
