"""A filter of system calls, put over this process and all that it starts: for good."""

import ctypes
import os
from pathlib import Path

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2
_STEP = 8
"""Bytes of one instruction."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def apply(path: Path) -> None:
    """Put the program in that file, in the kernel's own language, over this process.

    What was in force before stays in force too. Raises OSError.
    """
    steps = path.read_bytes()
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps) // _STEP, steps)
    for option, value, more in (
        (_PR_SET_NO_NEW_PRIVS, 1, None),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program)),
    ):
        if libc.prctl(option, value, more, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl {option}: {os.strerror(number)}")
