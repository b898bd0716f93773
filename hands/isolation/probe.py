"""Whether a sandbox can be made on this machine: by making one."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hands.isolation import bwrap, launch, seccomp, uids

_LIMIT = 10.0
"""Seconds for it; it takes a twentieth of one."""


class NotKnown(Exception):
    """Whether a sandbox can be made could not be found out now; another time it may be."""


def problem() -> str:
    """Why no sandbox can be made here, and what to do about it; empty when one can.

    Raises NotKnown.
    """
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; install it"
    try:
        seccomp.program()
    except KeyError:
        return f"there is no filter of system calls for {os.uname().machine}"
    try:
        tried = _try()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotKnown(f"a sandbox could not be tried: {error}") from error
    if tried.returncode != 0:
        said = tried.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"bubblewrap does not work here: {said or tried.returncode}"
    return ""


def _try() -> subprocess.CompletedProcess[bytes]:
    with tempfile.TemporaryDirectory(prefix="carpal-probe-") as name:
        folder = Path(name)
        root = os.geteuid() == 0
        uid = uids.FIRST + uids.COUNT - 1 if root else None
        if uid is not None:
            os.chown(folder, uid, uid)
        box = bwrap.Sandbox(folder, folder, folder, uid, uid, {"PATH": bwrap.PATH})
        with launch.files(box) as opened:
            line = bwrap.arguments(box, [*bwrap.python(), "-c", ""], opened["options"])
            return subprocess.run(
                line,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=tuple(opened.values()),
                timeout=_LIMIT,
                check=False,
            )
