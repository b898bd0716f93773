"""How new the database must at least be, in a file outside of its folder.

A copy of the folder that is put back is older than this says, and so is noticed. Whoever writes
this file too is not: then the audit says it, and a head of it that was noted on another machine.
"""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from carpal.errors import refuse
from carpal.status import Reason
from carpal.tls import private_folder, write_file


@dataclass(frozen=True, slots=True)
class Mark:
    """A state of the database."""

    epoch: int
    """Counts its changes."""
    manifest: str
    """Hex; of everything in it that must not change unseen."""


class Anchor:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Mark | None:
        """What it says; None when it is not there. VAULT_CORRUPT for what is none."""
        try:
            said = json.loads(self.path.read_bytes())
            return Mark(int(said["epoch"]), str(said["manifest"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise refuse(
                Reason.VAULT_CORRUPT,
                f"{self.path} cannot be read",
                action="remove it, and `carpal vault restore --accept-restore`",
            ) from None

    def raise_to(self, mark: Mark, *, anyway: bool = False) -> None:
        """Note a state that is committed; one that is older than the noted is left, or `anyway`."""
        private_folder(self.path.parent)
        lock = self.path.with_name(f"{self.path.name}.lock")
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            there = None if anyway else self.read()
            if there is None or there.epoch < mark.epoch:
                told = {"epoch": mark.epoch, "manifest": mark.manifest}
                write_file(self.path, json.dumps(told).encode() + b"\n")
        finally:
            os.close(handle)
