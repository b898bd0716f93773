"""What a daemon left behind that nobody owns: processes, sockets, cgroups, folders.

For any test that kills things. What a live hand's supervisor holds is owned; so is the
folder of a hand that is lost and not released yet. All else below a daemon's state folder
that outlives its hand is an orphan, and a fault.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from carpal import hand_mark
from hands.inside import tree
from hands.isolation import cgroups
from tests.hands.place import until

_CGROUPS = Path("/sys/fs/cgroup")


def orphans(state: Path) -> list[str]:
    """What is there of hands below a daemon's state folder and should not be, in words.

    Of control groups those that bear the id of a hand, anywhere; see `own_cgroups` for others.
    """
    hands = (state / "hands").resolve()
    known = _hands(state / "journal.db")
    live = {hand_id for hand_id, kept in known.items() if kept == "live"}
    found = [f"process {line}" for line in _processes(hands, live)]
    for folder in sorted(hands.iterdir()) if hands.is_dir() else []:
        kept = known.get(folder.name, "in no journal")
        if kept not in ("live", "lost", "provisioning"):
            found.append(f"folder {folder} of a hand that is {kept}")
        if kept != "live" and (folder / "socket").exists() and not _ended(folder):
            found.append(f"socket {folder / 'socket'} of a hand that is {kept}")
    gone = known.keys() - live
    named = {cgroups.name_of(hands / hand_id) for hand_id in gone}
    found += [
        f"cgroup {one}"
        for one in _cgroups()
        if one.name in named or any(hand_id in one.name for hand_id in gone)
    ]
    return found


async def nothing_orphaned(state: Path) -> None:
    """Fail unless all that has no owner is gone, or goes in a moment."""
    await until(lambda: not orphans(state), f"left below {state}: {orphans(state)}")


def own_cgroups(root: Path = _CGROUPS, of: Path = Path("/proc/self/cgroup")) -> set[Path]:
    """Control groups below those that this process is in, as what it starts would make them.

    To be compared before and after. Of version 1 each hierarchy counts, of version 2 the one.
    Where this process is at the top of a hierarchy, as on a machine without delegation, that
    hierarchy has everybody's groups and counts for nothing: there `orphans` finds only those
    that bear a hand's id. No hand type of ours makes any group yet.
    """
    found: set[Path] = set()
    for line in of.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if path == "/":
            continue
        names = [controllers.removeprefix("name=")] if controllers else ["unified", "."]
        for own in (Path(root, name, path.lstrip("/")) for name in names):
            found.update(Path(at, name) for at, below, _ in os.walk(own) for name in below)
    return found


def _hands(journal: Path) -> dict[str, str]:
    """Every hand the journal has, and its state."""
    if not journal.exists():
        return {}
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as db:
        return {str(row[0]): str(row[1]) for row in db.execute("SELECT hand_id, state FROM hands")}


def _processes(hands: Path, live: set[str]) -> list[str]:
    """Processes that carry a hand's mark, and whose hand is not live or does not hold them."""
    prefix = os.fsencode(hand_mark.every(hands))
    marked: dict[int, str] = {}
    for process in tree.everyone().values():
        try:
            environment = Path("/proc", str(process.pid), "environ").read_bytes()
        except OSError:
            continue  # gone, or not ours
        for entry in environment.split(b"\0"):
            if entry.startswith(prefix):
                marked[process.pid] = os.fsdecode(entry[len(prefix) :])
    found = []
    for pid, hand_id in marked.items():
        if hand_id not in live:
            found.append(f"{pid} of hand {hand_id}, which is not live: {_command(pid)}")
        elif not _held(pid, hands / hand_id):
            found.append(f"{pid} of hand {hand_id}, held by no supervisor: {_command(pid)}")
    return [line for line in found if line.split()[0] and tree.find(int(line.split()[0]))]


def _held(pid: int, folder: Path) -> bool:
    """Whether it is the hand's supervisor, or below it."""
    process = tree.find(pid)
    while process is not None and process.parent > 1:
        if _names(process.pid, folder):
            return True
        process = tree.find(process.parent)
    return process is None or _names(process.pid, folder)  # gone meanwhile is no orphan


def _names(pid: int, folder: Path) -> bool:
    return os.fsencode(str(folder)) in _command_bytes(pid) and b"supervisor" in _command_bytes(pid)


def _ended(folder: Path) -> bool:
    """Whether no supervisor serves the socket any more: a killed one cannot remove it."""
    return not any(_names(process.pid, folder) for process in tree.everyone().values())


def _cgroups() -> list[Path]:
    return [Path(root, name) for root, names, _ in os.walk(_CGROUPS) for name in names]


def _command(pid: int) -> str:
    return os.fsdecode(_command_bytes(pid).replace(b"\0", b" "))[:120]


def _command_bytes(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""
