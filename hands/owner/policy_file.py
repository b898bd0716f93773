"""The owner's policy as it is in force: read at the start, and again when the daemon is told to.

A file that is wrong at the start keeps the daemon from starting. Later the one before stays in
force, and the log says why: a mistake in a file must open nothing.
"""

import logging
import os
import stat
from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from hands.owner.policy import NOTHING_SAID, Policy
from hands.owner.policy_text import read

log = logging.getLogger(__name__)

SYSTEM_FILE = Path("/etc/carpal/policy.toml")
_SIZE_MAX = 1024 * 1024


class PolicyFile:
    """What the daemon asks for the policy."""

    def __init__(self, path: Path | None = None) -> None:
        """Read `path`, or else the system's file when there is one. Raises CONFIG_INVALID."""
        self._path = path
        self.policy = load(path)

    def reload(self) -> CarpalError | None:
        """Read it again. What is wrong is returned, and the policy stays as it was."""
        try:
            policy = load(self._path)
            if not policy.file and self.policy.file:
                gone = f"{self.policy.file} is gone, and what it said stays in force"
                raise refuse(
                    Reason.CONFIG_INVALID, gone, action="put it back, or start the daemon anew"
                )
        except CarpalError as error:
            return error
        self.policy = policy
        log.info("the owner's policy is read", extra={"file": policy.file, "sha256": policy.digest})
        return None


def load(path: Path | None) -> Policy:
    """The policy in a file. CONFIG_INVALID for one that is wrong, or that others may write."""
    file = path or SYSTEM_FILE
    try:
        text = _text(file)
    except FileNotFoundError:
        if path is None:
            return NOTHING_SAID
        raise _bad(f"{file}: no such file", "write it, or take `policy` out") from None
    except OSError as error:
        raise _bad(f"{file}: {error.strerror}", "make it readable for the daemon") from None
    except UnicodeDecodeError:
        raise _bad(f"{file}: not TOML: it is not UTF-8", "correct the file") from None
    return read(text, str(file))


def _text(file: Path) -> str:
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as opened:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise _bad(f"{file} is no file", "write one there")
        if found.st_size > _SIZE_MAX:
            raise _bad(f"{file} has more than {_SIZE_MAX} bytes", "make it shorter")
        others = found.st_mode & 0o022
        if others or found.st_uid not in (0, os.geteuid()):
            who = "others than its owner may write it" if others else "it is another user's"
            raise _bad(f"{file}: {who}", f"`chown root {file}` and `chmod 644 {file}`")
        return opened.read().decode()


def _bad(message: str, action: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, message, action=action)
