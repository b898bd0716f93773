"""How fast this machine is taken to be, and how long the whole run may take.

Every bound of a test that depends on speed is a number of seconds times
`SCALE`, from CARPAL_TEST_SCALE: a slow or a loaded machine gets all the time
it needs from this one knob.

With CARPAL_SOAK=1, which `scripts/soak` sets, tests that repeat something do it as
often as they promise, and no test has a limit that this would reach.

With CARPAL_TEST_BOUND, in seconds, which `scripts/test` sets, a run that takes
longer names what it is at, and one that takes twice as long is ended there.
A test's own limit cannot see to that: what hangs may be the end of a test, of
a worker, or of pytest itself.
"""

import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

import pytest

from tests.faults import tree

SCALE = float(os.environ.get("CARPAL_TEST_SCALE") or 1)
AT_ONCE = 5.0 * SCALE
"""Seconds within which happens what waits for nothing, where the alternative takes a minute."""
SOAK = os.environ.get("CARPAL_SOAK") == "1"
_SOAK_SECONDS = 6 * 3600.0
"""The limit of a test in a soak: it ends by itself, even if it hangs."""
SEED = int(os.environ.get("CARPAL_TEST_SEED") or 0)
"""What chance begins with in tests that say so when they fail; 0 for another each time."""
_LAST_WORDS = 2.0
"""Seconds for workers to say where they are."""


def times(usual: int, soak: int) -> int:
    """How often to do what a test repeats: in every run, or in a soak."""
    return soak if SOAK else usual


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Scale every test's limit."""
    if SCALE == 1 and not SOAK:
        return  # as they are, and `--timeout` counts
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = marker.args[0] if marker else config.getini("timeout")
        limit = _SOAK_SECONDS if SOAK else float(seconds)
        item.add_marker(pytest.mark.timeout(limit * SCALE), append=False)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the whole run, where it is led from."""
    bound = float(os.environ.get("CARPAL_TEST_BOUND") or 0) * SCALE
    if bound and not hasattr(config, "workerinput"):
        # Capturing has not begun, so this stays the terminal.
        terminal = os.fdopen(os.dup(1), "w", buffering=1)
        config.pluginmanager.register(Bound(bound, terminal), "carpal-bound")


class Bound:
    """Says what takes too long, and ends it."""

    def __init__(self, seconds: float, terminal: TextIO) -> None:
        self._seconds = seconds
        self._terminal = terminal
        self._running: dict[str, float] = {}
        self._last = "nothing yet"
        # Never told to stop: the end of pytest may hang too, and this ends with the process.
        threading.Thread(target=self._watch, name="bound", daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test began; from a worker too."""
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test ended."""
        self._running.pop(nodeid, None)
        self._last = nodeid

    def _watch(self) -> NoReturn:
        time.sleep(self._seconds)
        self._say(f"this run has taken {self._seconds:g} s, which is all it should")
        time.sleep(self._seconds)
        self._say(f"this run is ended after {2 * self._seconds:g} s")
        stack = sys._current_frames()[threading.main_thread().ident or 0]
        self._terminal.write("".join(traceback.format_stack(stack)))
        _, *below = tree(os.getpid())
        workers = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for pid in map(int, workers):
            _send(pid, signal.SIGABRT)  # its stacks are printed
        time.sleep(_LAST_WORDS)
        for pid in below:
            _send(pid, signal.SIGKILL)
        os._exit(124)

    def _say(self, what: str) -> None:
        now = time.monotonic()
        at = [f"{test} for {now - began:.0f} s" for test, began in list(self._running.items())]
        self._terminal.write(
            f"\n{what}\nit is at: {', '.join(at) or 'no test'}\n"
            f"the last test that ended: {self._last}\n"
        )


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
