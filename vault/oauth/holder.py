"""Which process refreshes: a name that says whether it still lives.

A lease of a process that was killed ends with it. Where nothing tells (another machine, another
container), it ends with its time.
"""

import os
from contextlib import suppress
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def own() -> str:
    """This process, among all there were."""
    return f"{_here()} {os.getpid()} {_start(os.getpid())}"


def gone(holder: str) -> bool:
    """Whether that process is known to live no more."""
    here, pid, start = holder.rsplit(" ", 2)
    return here == _here() and _start(int(pid)) != start


def boot() -> str:
    """Of this machine. A steady clock starts anew with each."""
    return _BOOT.read_text().strip()


def _here() -> str:
    return f"{boot()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - no path


def _start(pid: int) -> str:
    """When it began; empty when there is none, or it has ended and waits to be noticed."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] not in (b"Z", b"X"):
            return fields[19].decode()
    return ""
