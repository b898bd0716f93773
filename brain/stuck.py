"""Code of others on our event loop that does not come back is interrupted.

A harness decides on the event loop, where it sees the transcript as it is and
nothing moves meanwhile. One that loops for ever would stand for every session of
this brain, so a thread looks on and raises `Stuck` inside it, again and again until
the step is over. That reaches any Python code. A call into C that never returns it
does not: `carpal/loop_watch.py` says then where the loop stands still, and the step
is found to have taken too long once it comes back.
"""

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
_NOTHING = ctypes.py_object()
"""C's NULL: takes back what was to be raised."""
_AGAIN = 0.01
"""Seconds until it is raised again in code that goes on all the same."""


class Stuck(BaseException):
    """Raised in code that took too long; no `except Exception` of its own catches it."""


class _Step:
    """One step of somebody's code, on one thread."""

    def __init__(self, limit: float) -> None:
        self.thread = threading.get_ident()
        self.limit = limit
        self.took = 0.0
        """Seconds, as the watch saw them pass: not those in which this process stood still."""
        self.worked = time.thread_time()


class _Watch:
    """A thread that looks a few times within the limit whether it is still the same step.

    Steps are many and short: one costs two clock readings, and wakes nobody.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step: _Step | None = None
        self._thread: threading.Thread | None = None

    def begin(self, limit: float) -> _Step:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(limit / 4,), name="stuck", daemon=True
            )
            self._thread.start()
        self._step = step = _Step(limit)
        return step

    def end(self) -> None:
        while True:
            try:
                with self._lock:
                    self._step = None
                # One may be on its way: the step is over, and what comes next is not at fault.
                _raise_in(threading.get_ident(), _NOTHING)
                return
            except Stuck:
                continue  # it arrived here

    def _run(self, look: float) -> None:
        pause = look
        while True:
            began = time.monotonic()
            seen = self._step
            time.sleep(pause)
            # A process that was stopped for a while was not at work.
            passed = min(time.monotonic() - began, 2 * pause)
            pause = look
            with self._lock:
                step = self._step
                if step is None or step is not seen:
                    continue
                step.took += passed
                if step.took > step.limit:
                    _raise_in(step.thread, ctypes.py_object(Stuck))
                    pause = _AGAIN


_watch = _Watch()


@contextmanager
def interrupting(limit: float) -> Iterator[None]:
    """Raise `Stuck` in the block when it takes more than `limit` seconds. Not to be nested.

    Also after a block that took longer and came back by itself, with whatever it came back.
    """
    step = _watch.begin(limit)
    try:
        yield
    finally:
        _watch.end()
        if step.took > limit or time.thread_time() - step.worked > limit:
            raise Stuck
