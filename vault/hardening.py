"""A process that holds keys leaves none behind: no core dump, no other process that reads it.

Python cannot wipe what it held; so that is all that is done. Swap is the machine's owner's.
"""

import ctypes
import logging
import os
import resource
import sys

_log = logging.getLogger(__name__)

_PR_SET_DUMPABLE = 4


def no_core() -> None:
    """For a command, which holds keys for a moment."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def harden() -> None:
    """For the service, for the rest of its life. Files it makes are for its owner alone."""
    os.umask(0o077)
    no_core()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            why = os.strerror(ctypes.get_errno())
            _log.warning("other processes of this user may read this one", extra={"why": why})
