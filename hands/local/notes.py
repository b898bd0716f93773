"""The daemons that one user runs here: units are things of the machine, not of a state folder.

Each leaves a note of where it answers, in a folder of its user's that does not go by any setting.
A note is of no use by itself: a daemon that was killed leaves one, and who reads it asks there.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from carpal.tls import private_folder

log = logging.getLogger(__name__)

PLACE = "CARPAL_TEST_NOTES"
"""Where tests have the folder, so that those beside each other share no machine; nobody else."""
_IN = "/dev/shm"  # noqa: S108 - the folder in it is looked at
"""In memory, so that a boot clears it; and one and the same for a service whose /tmp is its own."""


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A daemon that ran here, and may do so still."""

    state: Path
    """Its state folder."""
    sockets: Mapping[str, Path]
    """The hand types that it has by `[sockets]`, and where their servers are."""


@contextmanager
def noted(state: Path, sockets: Mapping[str, Path]) -> Iterator[None]:
    """Keep a note of a daemon while the block lasts; the caller holds `state` as its only one.

    Where there can be none the daemon does without, and the log says why.
    """
    whole = state.absolute()
    row = {"state": str(whole), "sockets": {name: str(path) for name, path in sockets.items()}}
    note = _folder() / sha256(os.fsencode(whole)).hexdigest()[:32]
    try:
        private_folder(note.parent)
        _check(note.parent)
        written = note.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(row), encoding="utf-8")
        written.replace(note)  # nobody reads half of one
    except OSError as error:
        log.warning("no note of this daemon", extra={"note": str(note), "why": str(error)})
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)


def daemons() -> list[Noted]:
    """Those that left a note, of this user, by their folders."""
    found = []
    try:
        _check(_folder())
        notes = sorted(path for path in _folder().iterdir() if not path.suffix)
    except OSError:  # no daemon of this user ever ran here, or the folder is another's
        return []
    for path in notes:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            row = json.loads(path.read_text(encoding="utf-8"))
            sockets = {str(name): Path(each) for name, each in row["sockets"].items()}
            found.append(Noted(state=Path(row["state"]), sockets=sockets))
    return found


def _folder() -> Path:
    return Path(os.environ.get(PLACE) or _IN, f"carpal-daemons-{os.geteuid()}")


def _check(folder: Path) -> None:
    """Anyone may make a folder there: raises PermissionError for one that others may write in."""
    info = folder.lstat()
    if info.st_uid != os.geteuid() or info.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{folder} is not this user's alone")
