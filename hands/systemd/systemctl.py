"""systemd, asked by its own command."""

import re
import shutil
import subprocess
from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

_BOOTED = Path("/run/systemd/system")
"""There where systemd runs the machine (sd_booted(3))."""
_LIMIT = 120.0
"""Seconds for one command; a stop waits for calls."""


class Systemd:
    """The one that runs this machine, if it does."""

    def __init__(self, booted: Path = _BOOTED) -> None:
        self.runs = booted.is_dir() and shutil.which("systemctl") is not None
        """Whether there is one to ask."""

    def call(self, *arguments: str, limit: float = _LIMIT) -> str:
        """`systemctl ARGUMENTS`. Raises INTERNAL with its last words."""
        try:
            ran = subprocess.run(
                ["systemctl", *arguments],
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            why = f"it took more than {limit:g} s" if _is_late(error) else str(error)
            raise _failed(arguments, why) from None
        if ran.returncode:
            raise _failed(arguments, ran.stderr.strip() or f"exit code {ran.returncode}")
        return ran.stdout.strip()

    def state(self, unit: str) -> str:
        """`active`, `inactive`, `failed`, …; `unknown` where it is not there."""
        ran = subprocess.run(
            ["systemctl", "is-active", unit],
            capture_output=True, text=True, timeout=_LIMIT, check=False,
        )  # fmt: skip
        return ran.stdout.strip() or "unknown"

    def version(self, otherwise: int) -> int:
        """Its number, such as 257; `otherwise` where there is none that says so."""
        try:
            ran = subprocess.run(
                ["systemctl", "--version"],
                capture_output=True, text=True, timeout=_LIMIT, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return otherwise
        found = re.match(r"systemd ([0-9]+)", ran.stdout)
        return int(found[1]) if found else otherwise


def _is_late(error: Exception) -> bool:
    return isinstance(error, subprocess.TimeoutExpired)


def _failed(arguments: tuple[str, ...], why: str) -> CarpalError:
    said = " ".join(arguments)
    return refuse(
        Reason.INTERNAL, f"`systemctl {said}` failed: {why}", action="mend that and run it again"
    )
