"""Where a daemon's recent log is: what systemd kept of its unit, or a file."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

UNIT = "carpal-hand.service"
LINES_MAX = 2000
_BYTES_MAX = 1024 * 1024
_LIMIT = 15.0


@dataclass(frozen=True)
class Log:
    """What there is."""

    source: str
    """Where it is from, or why there is none, in words."""
    lines: list[str]


def recent(file: Path | None) -> Log:
    """The last lines of `file`, else of the unit's journal. Raises OSError for a file."""
    if file is not None:
        return Log(f"the file {file}", _tail(file))
    program = shutil.which("journalctl")
    if program is None:
        return Log("no log: there is no journalctl here; if it is in a file, give --log FILE", [])
    line = [program, "-u", UNIT, "-n", str(LINES_MAX), "-o", "cat", "--no-pager", "-q"]
    try:
        ran = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT,
            check=False,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Log(f"no log: journalctl {type(error).__name__}; if it is in a file, --log FILE", [])
    lines = ran.stdout[-_BYTES_MAX:].decode("utf-8", "replace").splitlines()
    if not lines:
        return Log(f"no log: the journal has none of {UNIT}; if it is in a file, --log FILE", [])
    return Log(f"journalctl -u {UNIT}", lines[-LINES_MAX:])


def _tail(file: Path) -> list[str]:
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - _BYTES_MAX))
        lines = opened.read(_BYTES_MAX).decode("utf-8", "replace").splitlines()
    return lines[-LINES_MAX:]
