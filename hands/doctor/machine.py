"""The machine: room on its disk, what its kernel allows, and what each hand type makes of it."""

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from carpal import extras
from carpal.errors import CarpalError
from hands import types
from hands.contract import Closing, HandType, Health, Preparing
from hands.doctor.rows import LIMIT, Row, Verdict, fail, looked, ok, skip, warn
from hands.doctor.subject import Subject
from hands.doctor.threads import in_thread
from hands.isolation import cgroups, probe
from hands.owner import policy_file
from hands.owner.policy_known import tools_of, unknown

_LITTLE = 1 << 30
"""Bytes free below which it is said: hands' workspaces are on that disk too."""
_NONE = 1 << 20
"""Bytes free below which a daemon does not begin."""
_USERS = Path("/proc/sys/user/max_user_namespaces")
_DEBIAN = Path("/proc/sys/kernel/unprivileged_userns_clone")
_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


def disk(subject: Subject) -> list[Row]:
    """Whether there is room where the state is, and whether it can be written."""
    place = next(at for at in (subject.files.folder, *subject.files.folder.parents) if at.exists())
    found, nodes = shutil.disk_usage(place), os.statvfs(place)
    free = f"{_size(found.free)} of {_size(found.total)} free at {place}"
    room = f"free some of the disk of {place}, or give another --state-dir"
    if found.free < _NONE:
        return [fail("disk", free, room)]
    if nodes.f_files and not nodes.f_favail:
        return [fail("disk", f"{place} has no room for one more file (no inodes)", room)]
    if os.access(place, os.W_OK):
        try:
            with tempfile.TemporaryFile(dir=place, prefix=".carpal-doctor-") as file:
                file.write(b"\0" * 4096)
                file.flush()
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            action = room if full else f"mend that: a daemon writes below {place}"
            return [fail("disk", f"{place} cannot be written: {error.strerror}", action)]
    elif os.statvfs(place).f_flag & os.ST_RDONLY:
        return [fail("disk", f"{place} is mounted read-only", "mount it so that it can be written")]
    if found.free < _LITTLE:
        return [warn("disk", free, f"have 1 GiB or more free there: {room}")]
    return [ok("disk", free)]


def groups(pid: int | None) -> list[Row]:
    """Whether hands' memory, processes and processors can be limited, as seen from a process."""
    proc = Path("/proc", str(pid)) if pid else Path("/proc/self")
    whose = "the daemon" if pid else "this command"
    with cgroups.only_looking():
        can = sorted(cgroups.bases(proc))
    lacking = sorted({"memory", "pids", "cpu"} - set(can))
    if not lacking:
        return [ok("cgroups", f"{', '.join(can)} can be limited, as {whose} stands")]
    detail = f"{', '.join(lacking)} of a hand cannot be limited, as {whose} stands"
    by = "" if os.geteuid() == 0 else " or as root"
    action = (
        f"start the daemon by its systemd unit (`Delegate=yes`){by}, where the machine lets it "
        "make control groups; without, hands run all the same, and one that is asked for with such "
        "a limit is refused"
    )
    return [warn("cgroups", detail, action)]


async def sandbox(subject: Subject) -> list[Row]:
    """Whether a sandbox can be made here: by making one."""
    if subject.settings.sandbox == "off":
        return [skip("sandbox", "the setting `sandbox` is off: hands get none")]
    try:
        why = await in_thread(probe.problem)
    except probe.NotKnown as error:
        return [warn("sandbox", str(error), "run it again, when the machine is less busy")]
    if not why:
        return [ok("sandbox", "process hands get one of their own")]
    without = subject.settings.sandbox == "auto" and os.geteuid() != 0
    action = _allow(why)
    why = why.removesuffix("; install it")  # the action says how
    if without:
        return [warn("sandbox", f"hands run as the daemon's user, without one: {why}", action)]
    return [fail("sandbox", f"there are no process hands, since none can be made: {why}", action)]


async def hand_types(subject: Subject) -> list[Row]:
    """Each type that is installed, or served on a socket: whether it can make a hand."""
    entries = types.registered()
    sandbox, names = subject.settings.sandbox, {each.name for each, _ in entries}
    checks: list[tuple[str, Callable[[], HandType]]] = [
        (each.name, partial(types.made, each, sandbox))
        for each, taken_by in entries
        if not taken_by
    ]
    for name, path in subject.settings.sockets.items():
        checks.append((name, partial(types.served, name, path, names)))
    tools: dict[str, Collection[str] | None] = {}
    rows = await asyncio.gather(
        *(
            looked(f"type {name}", _probe(name, make, subject, tools), LIMIT)
            for name, make in checks
        )
    )
    twice = [
        warn(
            f"type {each.name}",
            f"{each.value} is left out: {taken_by} has that name",
            "uninstall one of them, or have its author rename it",
        )
        for each, taken_by in entries
        if taken_by
    ]
    found = [row for some in (*rows, twice) for row in some]
    named = _named(subject, tools)
    if not found:
        return [fail("type", "no hand type is installed", "install carpal anew"), *named]
    if any(row.verdict is Verdict.OK for row in found):
        return [*(row.milder("others can") for row in found), *named]
    return [*found, *named]


def _named(subject: Subject, tools: Mapping[str, Collection[str] | None]) -> list[Row]:
    """Whether the owner's policy names what no type here has."""
    with suppress(CarpalError):  # a policy that is wrong has its own row
        policy = policy_file.load(subject.settings.policy)
        if found := unknown(policy, tools):
            detail = f"{policy.file} names what no hand type here has: {', '.join(found[:8])}"
            action = "correct it, if it is misspelt; for a type that is yet to come it may stay"
            return [warn("policy names", detail, action)]
    return []


async def _probe(
    name: str,
    make: Callable[[], HandType],
    subject: Subject,
    tools: dict[str, Collection[str] | None],
) -> list[Row]:
    """A type's row; its tools are put with the others, None while they are not known."""
    target = f"type {name}"
    with suppress(CarpalError):  # a policy that is wrong has its own row
        if not policy_file.load(subject.settings.policy).offers(name):
            tools[name] = None
            return [skip(target, "the owner's policy does not offer it")]
    try:
        made = make()
    except ImportError as error:
        action = f"if it is wanted here: {extras.how(name)}"
        return [skip(target, f"left out: {error}", action)]
    tools[name] = None
    try:
        with cgroups.only_looking():
            if isinstance(made, Preparing):
                await made.prepare()
            tools[name] = tools_of(made)
            health = await made.probe()
    finally:
        if isinstance(made, Closing):
            await made.close()
    return [probed(target, health)]


_VIEW = "by this command's environment"
"""Whose view it is: a running daemon may have another `DOCKER_HOST`, or another `PATH`."""


def probed(target: str, health: Health) -> Row:
    """A type's own word as a row."""
    if health.ready:
        lacks = ", ".join(health.not_enforceable)
        return ok(target, f"ready, {_VIEW}{f'; cannot limit {lacks}' if lacks else ''}")
    reason = health.reason or "it does not say why"
    if health.broken:
        return fail(target, f"it can make no hands, {_VIEW}", reason)
    return warn(target, "it starts", reason)


def _allow(why: str) -> str:
    """What to do so that a sandbox can be made."""
    if "not installed" in why:
        return "install it: apt-get install bubblewrap"
    if os.geteuid() != 0 and _number(_USERS) == 0:
        return f"allow user namespaces: sysctl -w user.max_user_namespaces=10000 ({_USERS} is 0)"
    if os.geteuid() != 0 and _number(_DEBIAN) == 0:
        return "allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1"
    if os.geteuid() != 0 and _number(_APPARMOR) == 1:
        return (
            "allow bubblewrap user namespaces: give /usr/bin/bwrap an AppArmor profile with "
            "`userns`, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    return (
        "let bubblewrap make namespaces and mounts (in a container: run it with those allowed), "
        'or say sandbox = "off" in hand.toml, if hands may do what the daemon\'s user may'
    )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
