"""Where a daemon keeps what, below its state folder; and that it is the only one there."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carpal.errors import refuse
from carpal.status import Reason
from carpal.tls import IdentityFiles, private_folder

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HandFiles:
    """The daemon's part of a state folder."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "hand"
        self.identity_dir = self.folder / "identity"
        self.journal = self.folder / "journal.db"
        self.hands = self.folder / "hands"
        self.revoked = self.folder / "revoked.bin"
        """The servers that are revoked."""

    @property
    def identity(self) -> IdentityFiles:
        """Who the daemon is."""
        return IdentityFiles(self.identity_dir)

    def check_enrolled(self) -> None:
        """CONFIG_INVALID when nobody ever enrolled here; of what is damaged, loading it says more.

        Makes nothing: the folder may be mistyped.
        """
        mine = self.identity
        parts = (mine.key, mine.certificate, mine.ca, mine.candidate.directory)
        if not any(path.exists() for path in parts):
            raise refuse(
                Reason.CONFIG_INVALID,
                f"there is no identity in {self.identity_dir}: this machine is not enrolled",
                action="run `carpal hand enroll --token-file FILE`, with a token of "
                "`carpal fleet token`; if it is enrolled, give its --state-dir",
            )

    @contextmanager
    def only_process(self) -> Iterator[None]:
        """Hold the folder; CONFIG_INVALID while another daemon does."""
        private_folder(self.folder)
        path = self.folder / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise refuse(
                    Reason.CONFIG_INVALID,
                    f"{self.folder} is in use by another daemon",
                    action="stop that one, or give another --state-dir",
                    held=str(self.folder),
                ) from None
            yield
        finally:
            os.close(descriptor)


def boot_id() -> str:
    """Of this machine: changes at every boot."""
    return _BOOT_ID.read_text().strip()
