"""Saying that a process serves: one JSON line on a pipe its parent gave it.

A parent that reads the pipe learns of success, with the facts, or of death,
by end of file; it never polls.
"""

import json
import os


def announce(fd: int | None, **facts: object) -> None:
    """Write the facts as one line to `fd` and close it; without a pipe, nothing."""
    if fd is None:
        return
    with os.fdopen(fd, "w", encoding="utf-8") as pipe:
        pipe.write(json.dumps(facts) + "\n")
