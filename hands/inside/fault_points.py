"""The fault points of a hand's supervisor: `carpal/fault_points.py` says what they are.

Own lines, for a supervisor has the standard library and its own files alone.
"""

import os
import signal
from pathlib import Path

FOLDER = "CARPAL_FAULTS"
_FOLDER = os.environ.get(FOLDER, "")
_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def point(name: str) -> None:
    """Kill or stop this supervisor, if a test armed this point; else nothing."""
    if not _FOLDER:
        return
    armed = Path(_FOLDER, name)
    try:
        action = _ACTIONS[armed.read_text(encoding="utf-8")]
        armed.rename(f"{armed}.{os.getpid()}")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), action)
