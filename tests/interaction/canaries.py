"""Looking for a secret wherever one could be left: in memory, of processes, and in files.

All secrets of a scenario share a mark, so one look for the mark's spellings finds each of them,
however it is coded; what has no mark is looked for by itself.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from vault.redact.patterns import spellings
from vault.secret import Secret

_PART = 16 * 1024 * 1024
"""Bytes of memory that are looked at together."""


class Look:
    """For some secrets, in all their spellings."""

    def __init__(self, values: Iterable[str]) -> None:
        self.forms = spellings(Secret(value) for value in values)
        self._overlap = max(map(len, self.forms))

    def within(self, data: bytes) -> str:
        """The first spelling that is there; empty when none is."""
        return next((form.decode() for form in self.forms if form in data), "")

    def files(self, *folders: Path) -> dict[str, str]:
        """What is found in files below, by place; in their names too."""
        found = {}
        for folder in folders:
            for path in folder.rglob("*"):
                if form := self.within(os.fsencode(path)):
                    found[f"name of {path}"] = form
                if path.is_file() and (form := self.within(path.read_bytes())):
                    found[str(path)] = form
        return found

    def said_of(self, pids: Iterable[int]) -> dict[str, str]:
        """What is found in environments and command lines."""
        found = {}
        for pid in pids:
            for what in ("environ", "cmdline"):
                try:
                    data = Path(f"/proc/{pid}/{what}").read_bytes()
                except OSError:
                    continue  # it has ended
                if form := self.within(data):
                    found[f"{what} of {pid}"] = form
        return found

    def memory(self, pid: int) -> tuple[str, int]:
        """What is found in all that a process may read, and how many bytes that was."""
        size, rest = 0, b""
        for part in _readable(pid):
            size += len(part)
            if form := self.within(rest + part):
                return form, size
            rest = part[-self._overlap :]
        return "", size


def everybody() -> list[int]:
    """The process list of this machine."""
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def those_of(state: Path) -> list[int]:
    """Processes that were started for the state in this folder, whoever is their parent."""
    mark, found = os.fsencode(state), []
    for pid in everybody():
        try:
            place = Path(f"/proc/{pid}")
            said = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        except OSError:
            continue
        if mark in said and pid != os.getpid():
            found.append(pid)
    return found


def _readable(pid: int) -> Iterator[bytes]:
    """Its memory, in parts: everything but what is a file on the disk and can only be read.

    Such a part has what the file has, and files are looked at where they lie.
    """
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, _, _, inode, *_ = line.split()
            begin, end = (int(each, 16) for each in span.split("-"))
            if rights[0] != "r" or (inode != "0" and rights[1] != "w"):
                continue
            while begin < end:
                try:
                    memory.seek(begin)
                    part = memory.read(min(_PART, end - begin))
                except (OSError, OverflowError, ValueError):
                    break  # of the kernel's own, or gone by now
                if not part:
                    break
                begin += len(part)
                yield part
