"""Named points in the code where a test can kill or stop the process, once.

`point("daemon.call.starting")` does nothing unless the environment variable
CARPAL_FAULTS names a folder. A file of the point's name in it arms the point:
`kill` in the file is SIGKILL, `stop` is SIGSTOP. Whoever reaches it first
takes the file away, leaving `<name>.<pid>`, and then sends itself the signal.
So each arming acts once, in one process, across restarts, and a test can arm
points while everything runs.

Names are `<process>.<thing>.<step>`. A step that is written down or sent has a
point on each side: `daemon.call.before_starting` and `daemon.call.starting`. A
hand's supervisor has a few lines of its own, in `hands/inside/fault_points.py`.
"""

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = "CARPAL_FAULTS"
"""The variable that names the folder. Never set outside of tests."""

_FOLDER = os.environ.get(FOLDER, "")
_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def point(name: str) -> None:
    """Kill or stop this process, if a test armed this point; else nothing."""
    if _FOLDER:
        _act(Path(_FOLDER, name))


def frame_points(process: str, messages: Iterable[Any], step: str) -> None:
    """The points of a frame of any of the link's streams, by what is in it.

    `brain.request_execute.written`, `daemon.attach_output.before_written`.
    """
    if _FOLDER:
        for message in messages:
            point(f"{process}.{kind_of(message)}.{step}")


def kind_of(message: Any) -> str:
    """`hello`, `heartbeat`, `request_claim`, `reply_execute`, … of a message of the link.

    On an Attach stream `attach_open`, `attach_output`, `attach_result`, and `attach_acknowledged`.
    """
    match message.DESCRIPTOR.name:
        case "AttachRequest":
            return f"attach_{message.execute.WhichOneof('step') or 'open'}"
        case "AttachResponse":
            return "attach_acknowledged"
    kind: str = message.WhichOneof("kind") or "unknown"
    if kind == "request":
        return f"request_{message.request.WhichOneof('call')}"
    if kind == "reply":
        return f"reply_{message.reply.WhichOneof('answer') or 'status'}"
    return kind


def _act(armed: Path) -> None:
    try:
        action = _ACTIONS[armed.read_text(encoding="utf-8")]
        armed.rename(f"{armed}.{os.getpid()}")  # of several who come at once, one gets it
    except FileNotFoundError:
        return
    os.kill(os.getpid(), action)
