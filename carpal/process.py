"""Running a process: one event loop, signals as a stop event, no lost errors."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from carpal.loop_watch import watched

log = logging.getLogger(__name__)

END_LIMIT = 10.0
"""Seconds from the end of a process's work to the end of the process, at the latest."""


_GARBAGE = (10_000, 50)
"""New objects after which cycles are looked for among them, and how often that is done before it
is among all that survived it; Python's own defaults are 700 and 10. Looking takes at most 3 to 5 ms
among 10,000 objects and 10 to 13 among 50,000, and as much in all (5,000 links in one process)."""


def collect_seldom() -> None:
    """For a process of many long-lived objects, once all is imported.

    Looking for cycles stops the loop: by default for half a second and more, again and again,
    while thousands of daemons link. What was imported is not looked at again.
    """
    gc.freeze()
    gc.set_threshold(*_GARBAGE)


def run(main: Callable[[asyncio.Event], Awaitable[None]], *, server: bool = False) -> bool:
    """Run `main` until it returns; SIGTERM or SIGINT sets its stop event.

    A second signal cancels it, which is no error: this gives whether that was so.
    A `server` runs on uvloop when it is installed; what spawns children does not:
    uvloop misses the end of their output when a grandchild lives on.
    """
    closed = threading.Event()
    try:
        with asyncio.Runner(loop_factory=_loop_factory() if server else None) as runner:
            try:
                with watched(runner.get_loop()):
                    return runner.run(_with_signals(main))
            finally:
                _end_anyway(closed)
    finally:
        closed.set()


def _end_anyway(closed: threading.Event) -> None:
    """End the process when its loop does not close: a thread of it, or of gRPC, may be stuck.

    What matters is done by then, and whoever waits for the end, such as an upgrade, is served.
    """

    def wait() -> None:
        if not closed.wait(END_LIMIT):
            log.error("the event loop does not close; the process ends without that")
            os._exit(1)

    threading.Thread(target=wait, name="end", daemon=True).start()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _with_signals(main: Callable[[asyncio.Event], Awaitable[None]]) -> bool:
    """Whether a second signal cut it short."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")
    cut_short = False

    def stopping() -> None:
        nonlocal cut_short
        if stop.is_set():
            cut_short = True
            task.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping)
    try:
        await main(stop)
    except asyncio.CancelledError:
        if not cut_short:
            raise
    except BaseExceptionGroup as group:
        # A TaskGroup wraps even a single error; callers want the error itself.
        raise only_error(group) from None
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return cut_short


def only_error(error: BaseException) -> BaseException:
    """The error in a group of groups when there is exactly one, else the group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def until_stopped(stop: asyncio.Event, *tasks: "asyncio.Task[Any]") -> None:
    """Wait for the stop event, or for the first of `tasks` to end; raise its error."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for task in done - {stopping}:
        task.result()


def interpreter() -> list[str]:
    """The command that runs `carpal` as this process runs, for child processes.

    Where it is found without the current folder, that is not searched: a folder
    of the user's that is named `brain` must not take our brain's place.
    """
    # Python puts the current folder, or the script's, first, unless it runs with -P.
    searched = sys.path if sys.flags.safe_path else sys.path[1:]
    found = str(Path(__file__).parent.parent) in searched
    return [sys.executable, *(["-P"] if found else []), "-m", "carpal"]
