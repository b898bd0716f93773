"""How a process hand's supervisor is started: in a sandbox, or beside the daemon."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from carpal.fault_points import FOLDER
from hands.builtin import common, egress
from hands.builtin.bound import Bound
from hands.contract import Order, ProvisionFailed
from hands.forwarder.rules import Rule
from hands.inside.shell import ALWAYS
from hands.isolation import bwrap, launch
from hands.isolation.cgroups import Group

_JOINING = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1" || exit 71; shift; n=$((n-1)); done; '
    'exec "$@"'
)
"""A shell's script: join so many groups, and become the program after them."""
_SUPERVISOR = Path(__file__).resolve().parents[1] / "supervisor.py"


@dataclass(frozen=True, slots=True)
class Inside:
    """What runs a hand's tools in a sandbox, where that is not its supervisor itself."""

    host: Sequence[str]
    """The program; `{line}` in it is the line's descriptor."""
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: Sequence[tuple[Path, str]] = ()
    """What it needs of the machine, besides its programs."""
    namespaces: bool = False
    """It makes sandboxes of its own."""
    home_max: int = 0
    """Bytes of its home at most, which is memory then, where the hand has no disk of its own; 0 for
    a folder of the machine's."""


async def sandboxed(
    order: Order,
    bound: Bound | None,
    start_limit: float,
    *,
    mark: str,
    group: Group,
    allowed: Sequence[Rule],
    inside: Inside | None = None,
) -> None:
    """Start it in a sandbox whose way out is `allowed`; it is ready when this returns."""
    root = os.geteuid() == 0
    size = int(order.limits.get("disk_bytes", 0))
    uid = common.settle(order, bound)
    gid = common.gid(uid, bound)
    files = common.files(order, uid, gid)
    memory = order.limits.get("memory_bytes", float("inf"))
    name, _, value = mark.partition("=")
    home_max = inside.home_max if inside and not size else 0
    box = bwrap.Sandbox(
        order.folder,
        bound.path if bound else files / "workspace",
        None if home_max else files / "home",
        uid if root else None,
        gid if root else None,
        {
            "PATH": bwrap.PATH,
            **common.environment(order),
            **egress.environment(allowed),
            **(inside.environment if inside else {}),
            name: value,
        },
        tmp=files / "tmp" if size else None,
        tmp_max=int(min(bwrap.TMP_MAX, memory / 4)),
        shm_max=int(min(bwrap.SHM_MAX, memory / 8)),
        home_max=int(min(home_max, memory / 4)),
        readable=inside.readable if inside else (),
        packages=inside is not None,
        namespaces=inside is not None and inside.namespaces,
    )
    command = [
        *(*bwrap.python(), f"{bwrap.CODE}/hands/supervisor.py", "--stay"),
        *(["--sealed"] if root else []),
        *egress.ARGUMENTS,
        *("--folder", bwrap.FOLDER, "--workspace", bwrap.WORKSPACE),
        *(["--host", json.dumps(inside.host)] if inside else []),
        *common.terms(order, start_limit),
    ]
    await launch.start(box, command, group.joins, {"PATH": path(), name: value})


async def plain(order: Order, workspace: Path, start_limit: float, mark: str) -> None:
    """Start it as the daemon's user; it is ready, and on its own, when this returns."""
    for name in ("home", "tmp"):
        (order.folder / name).mkdir(exist_ok=True)
    options = ["--workspace", str(workspace)]
    await outside(order, options, environment=_environment(order, mark), start_limit=start_limit)


async def outside(
    order: Order,
    options: Sequence[str],
    *,
    environment: Mapping[str, str],
    start_limit: float,
    joins: Sequence[str] = (),
) -> None:
    """Start one with these options in no sandbox; it is ready, and on its own, when this returns.

    `joins` are the files of control groups to join. Raises ProvisionFailed.
    """
    command = [
        *(sys.executable, "-I", "-S", str(_SUPERVISOR)),
        *("--folder", str(order.folder), *options),
        *common.terms(order, start_limit),
    ]
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _JOINING, "sh", str(len(joins)), *joins, *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(launch.READY_LIMIT):
            ready, errors = await process.communicate()
    except TimeoutError as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        message = f"the supervisor was not ready after {launch.READY_LIMIT:g} s"
        raise ProvisionFailed(message) from error
    if process.returncode != 0 or "pid" not in json.loads(ready or b"{}"):
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProvisionFailed(f"the supervisor did not start: {last or 'it said nothing'}")


def path() -> str:
    """Where the daemon finds programs."""
    return os.environ.get("PATH") or os.defpath


def _environment(order: Order, mark: str) -> dict[str, str]:
    """All that a hand gets: nothing of the daemon's own but its PATH and who it runs as."""
    user = {name: os.environ[name] for name in ("USER", "LOGNAME", FOLDER) if name in os.environ}
    name, _, value = mark.partition("=")
    return {
        **ALWAYS,
        **user,
        "PATH": path(),
        "SHELL": "/bin/bash",
        "HOME": str(order.folder / "home"),
        "TMPDIR": str(order.folder / "tmp"),
        **order.config.get("env", {}),
        name: value,
    }
