"""The one event loop of a process: that it is one, and a word in the log when it stands still.

Heartbeats come from the loop that does the work, on purpose: a loop that stands still serves
nobody, and a heartbeat from elsewhere would say that it does (docs/adr/0013-heartbeats.md). So
what keeps the loop from them is to be seen: a thread looks on, and says for how long it stood
still and at which line.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from weakref import ReferenceType, ref

from carpal.errors import refuse
from carpal.status import Reason

log = logging.getLogger(__name__)

LIMIT = 1.0
"""Seconds without an answer after which the loop stands still: a fifth of a heartbeat."""
_FRAMES = 3
"""Innermost lines of the stack that are logged."""

_first: ReferenceType[asyncio.AbstractEventLoop] | None = None


def the_one_loop() -> None:
    """CONFIG_INVALID when another loop of this process, which is not closed, uses gRPC.

    gRPC has one queue of events a process: a second loop would wait for ever for
    what the first one took.
    """
    global _first  # noqa: PLW0603 - it is a fact of the process
    loop = asyncio.get_running_loop()
    first = _first() if _first is not None else None
    if first is not None and first is not loop and not first.is_closed():
        raise refuse(
            Reason.CONFIG_INVALID,
            "another event loop of this process uses gRPC",
            action="run one event loop a process",
        )
    _first = ref(loop)


@contextmanager
def watched(loop: asyncio.AbstractEventLoop, limit: float = LIMIT) -> Iterator[None]:
    """Log when `loop`, which this thread runs, does not come round within `limit` seconds."""
    over = threading.Event()
    watcher = threading.Thread(
        target=_watch,
        args=(loop, threading.get_ident(), limit, over),
        name="loop-watch",
        daemon=True,
    )
    watcher.start()
    try:
        yield
    finally:
        over.set()


def _watch(
    loop: asyncio.AbstractEventLoop, thread: int, limit: float, over: threading.Event
) -> None:
    while not over.wait(limit):
        asked, came = time.monotonic(), threading.Event()
        with suppress(RuntimeError):  # it was closed
            loop.call_soon_threadsafe(came.set)
        if came.wait(limit) or over.is_set():
            continue
        waited = time.monotonic() - asked
        if waited > 2 * limit:
            # This thread stood still too.
            log.warning("the process was stopped, or the machine slept", extra=_seconds(waited))
            continue
        where = _where(thread)
        while not (came.wait(limit) or over.is_set()):
            pass
        waited = time.monotonic() - asked
        log.warning("the event loop stood still", extra={**_seconds(waited), "at": where})


def _seconds(waited: float) -> dict[str, float]:
    return {"seconds": round(waited, 1)}


def _where(thread: int) -> str:
    """What a thread is at, innermost first."""
    frame = sys._current_frames().get(thread)
    lines = traceback.extract_stack(frame)[-_FRAMES:] if frame else []
    return " < ".join(f"{line.name} ({line.filename}:{line.lineno})" for line in reversed(lines))
