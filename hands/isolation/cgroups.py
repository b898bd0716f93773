"""Control groups: how much memory, how many processes and processors a hand may have.

Version 1 and 2, made below the daemon's own group, so that what limits the
daemon limits its hands. A hand's group is named by its folder and found again
wherever the daemon itself is by then.
"""

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

_PERIOD = 100_000
"""Microseconds over which processor time is shared out."""
_END_LIMIT = 3.0
"""Seconds for the processes of a group to be gone."""
_CONTROLLERS = ("memory", "pids", "cpu")
LIMITS = {"memory_bytes": "memory", "processes": "pids", "cpus": "cpu"}
"""Limits by name, and the controller that keeps each."""
_STALE = 3600.0
"""Seconds after which an empty group is nobody's that is just being made."""
_DAEMON = "carpald"
"""In version 2 a group that has groups holds no processes: the daemon moves into this one."""


_only_looks: ContextVar[bool] = ContextVar("_only_looks", default=False)


@dataclass(frozen=True, slots=True)
class Base:
    """Where a controller's groups are made."""

    folder: Path
    """The daemon's own group."""
    root: Path
    """Of the hierarchy, as far as it is seen here."""
    version: int


def name_of(folder: Path) -> str:
    """The group's name, of the hand in `folder`; machines have several daemons."""
    return f"carpal-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]}"


def bases(proc: Path = Path("/proc/self")) -> dict[str, Base]:
    """Where groups may be made, by controller; only those where they can.

    None with CARPAL_CGROUPS=off: a unit of an older systemd could not be restarted beside them.
    """
    if os.environ.get("CARPAL_CGROUPS") == "off":
        return {}
    return {name: base for name, base in seen(proc).items() if _usable(name, base)}


@contextlib.contextmanager
def only_looking() -> Iterator[None]:
    """In the block `bases` makes way for nothing: what a daemon may change counts as changed."""
    token = _only_looks.set(True)
    try:
        yield
    finally:
        _only_looks.reset(token)


def seen(proc: Path = Path("/proc/self")) -> dict[str, Base]:
    """Where groups are, by controller, whether or not any may be made; nothing is changed."""
    try:
        mounts = (proc / "mountinfo").read_text()
        own = (proc / "cgroup").read_text()
    except OSError:
        return {}
    return parse(mounts, own)


def parse(mountinfo: str, own: str) -> dict[str, Base]:
    """The daemon's group of each controller, by what the kernel says of its mounts and itself."""
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            # One that made way, or was put there by its unit, is in a group of its own by now.
            paths[name] = path if names else path.removesuffix(f"/{_DAEMON}") or "/"
    found: dict[str, Base] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        _, _, _, shown, point, *_ = before.split()
        kind, _, options = after.split(maxsplit=2)
        if kind == "cgroup":
            for name in _CONTROLLERS:
                if name in options.split(",") and name in paths:
                    found[name] = Base(_below(point, shown, paths[name]), Path(point), 1)
        elif kind == "cgroup2" and "" in paths:
            for name in _CONTROLLERS:
                base = Base(_below(point, shown, paths[""]), Path(point), 2)
                found.setdefault(name, base)
    return found


def _below(point: str, shown: str, path: str) -> Path:
    inside = path[len(shown) :] if shown != "/" and path.startswith(shown) else path
    return Path(point) / inside.lstrip("/")


def _usable(name: str, base: Base) -> bool:
    if not os.access(base.folder, os.W_OK):
        return False
    if base.version == 1:
        return True
    return name in _words(base.folder / "cgroup.controllers") and _delegated(name, base.folder)


def _delegated(name: str, folder: Path) -> bool:
    """Whether groups below get the controller; the daemon makes way for that if it is alone."""
    control = folder / "cgroup.subtree_control"
    if name in _words(control):
        return True
    if _only_looks.get():
        return os.access(control, os.W_OK)
    with contextlib.suppress(OSError):
        control.write_text(f"+{name}")
    if name in _words(control):
        return True
    if _words(folder / "cgroup.procs") != [str(os.getpid())]:
        return False
    try:
        leaf = folder / _DAEMON
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        control.write_text(f"+{name}")
    except OSError:
        return False
    return True


_READ = 64 * 1024


def _words(path: str | Path) -> list[str]:
    # Each call asks: by the kernel's own calls it takes a fifth of what a Python file does.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    text = b""
    try:
        while more := os.read(handle, _READ):
            text += more
    except OSError:
        return []
    finally:
        os.close(handle)
    return text.decode().split()


@dataclass(frozen=True, slots=True)
class Group:
    """One hand's groups, by controller: in version 2 one and the same."""

    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def joins(self) -> list[str]:
        """The files into which a process writes itself to be in it."""
        return [str(path / "cgroup.procs") for path in dict.fromkeys(self.folders.values())]

    def out_of_memory(self) -> int:
        """Processes that were killed for want of memory, ever."""
        folder = self.folders.get("memory")
        for file in ("memory.events", "memory.oom_control"):
            words = _words(f"{folder}/{file}") if folder else []
            if "oom_kill" in words:
                return int(words[words.index("oom_kill") + 1])
        return 0

    def kill(self) -> int:
        """Kill all in it; waits, a bounded time, until they are gone. Says how many it saw."""
        ends, killed = time.monotonic() + _END_LIMIT, set[str]()
        for folder in dict.fromkeys(self.folders.values()):
            killed.update(_words(folder / "cgroup.procs"))
            with contextlib.suppress(OSError):
                (folder / "cgroup.kill").write_text("1")
            while (pids := _words(folder / "cgroup.procs")) and time.monotonic() < ends:
                killed.update(pids)
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.005)
        return len(killed)

    def remove(self) -> None:
        """Remove it; what is in it is dead or dying. Raises OSError when it resists."""
        ends = time.monotonic() + _END_LIMIT
        for folder in dict.fromkeys(self.folders.values()):
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > ends:
                        raise
                    time.sleep(0.005)
                    continue
                break


def make(name: str, limits: Mapping[str, float], available: Mapping[str, Base]) -> Group:
    """A group with those limits, which are all of `available`'s. Raises OSError."""
    group = Group({each: base.folder / name for each, base in available.items()})
    try:
        for controller, folder in group.folders.items():
            folder.mkdir(exist_ok=True)
            for file, value in _settings(controller, available[controller].version, limits):
                if (folder / file).exists() or "sw" not in file:  # no account of swap
                    (folder / file).write_text(value)
    except OSError:
        group.remove()
        raise
    return group


def _settings(controller: str, version: int, limits: Mapping[str, float]) -> list[tuple[str, str]]:
    match controller, version:
        case "memory", 1 if "memory_bytes" in limits:
            most = str(int(limits["memory_bytes"]))
            return [("memory.limit_in_bytes", most), ("memory.memsw.limit_in_bytes", most)]
        case "memory", 2 if "memory_bytes" in limits:
            return [("memory.max", str(int(limits["memory_bytes"]))), ("memory.swap.max", "0")]
        case "pids", _ if "processes" in limits:
            return [("pids.max", str(int(limits["processes"])))]
        case "cpu", 1 if "cpus" in limits:
            quota = str(max(1000, int(limits["cpus"] * _PERIOD)))
            return [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", quota)]
        case "cpu", 2 if "cpus" in limits:
            return [("cpu.max", f"{max(1000, int(limits['cpus'] * _PERIOD))} {_PERIOD}")]
    return []


def find(name: str, where: Mapping[str, Base]) -> Group:
    """The group of that name: below the daemon's own, or else wherever it is."""
    found = {c: base.folder / name for c, base in where.items() if (base.folder / name).is_dir()}
    if found:
        return Group(found)
    places: dict[Path, Path | None] = {}
    for controller, base in where.items():
        if base.root not in places:  # in version 2 it is one for all
            places[base.root] = _somewhere(name, base.root)
        if place := places[base.root]:
            found[controller] = place
    return Group(found)


def _somewhere(name: str, root: Path) -> Path | None:
    return next((Path(at, name) for at, below, _ in os.walk(root) if name in below), None)


def sweep(where: Mapping[str, Base], older: float = _STALE) -> None:
    """Remove groups of hands that ended without a daemon: empty, and not of the last hour.

    A live hand's holds its processes, and the kernel keeps such a one; so it does not
    matter whose they were.
    """
    for base in where.values():
        for folder in base.folder.glob("carpal-?????????*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < time.time() - older:
                    folder.rmdir()
