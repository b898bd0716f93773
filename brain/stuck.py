"""Code of others on our event loop that does not come back is interrupted.

A harness decides on the event loop, where it sees the transcript as it is and
nothing moves meanwhile. One that loops for ever would stand for every session of
this brain, so a thread looks on and raises `Stuck` inside it. That reaches any
Python code; a call into C that never returns it does not, and `carpal/loop_watch.py`
says then where the loop stands still.
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


class Stuck(BaseException):
    """Raised in code that took too long; no `except Exception` of its own catches it."""


class _Watch:
    """A thread that looks a few times within the limit whether it is still the same step.

    Steps are many and short: one costs two clock readings, and wakes nobody.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step: tuple[float, int] | None = None
        """When it must be over, on the monotonic clock, and the thread that takes it."""
        self._thread: threading.Thread | None = None

    def begin(self, limit: float) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(limit / 4,), name="stuck", daemon=True
            )
            self._thread.start()
        self._step = (time.monotonic() + limit, threading.get_ident())

    def end(self) -> None:
        with self._lock:
            self._step = None
        # One may be on its way: the step is over, and what comes next is not at fault.
        _raise_in(threading.get_ident(), _NOTHING)

    def _run(self, pause: float) -> None:
        while True:
            time.sleep(pause)
            with self._lock:
                if self._step is not None and time.monotonic() > self._step[0]:
                    _raise_in(self._step[1], ctypes.py_object(Stuck))
                    self._step = None


_watch = _Watch()


@contextmanager
def interrupting(limit: float) -> Iterator[None]:
    """Raise `Stuck` in the block when it takes more than `limit` seconds. Not to be nested."""
    _watch.begin(limit)
    try:
        yield
    finally:
        _watch.end()
