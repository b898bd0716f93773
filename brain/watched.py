"""A coroutine of somebody's code, each pass of which is watched.

On the event loop a coroutine comes in passes, from one wait to the next. One that
does not come back from a pass is interrupted as `brain/stuck.py` has it. One that is
cancelled and goes on waiting is given up: it is left where it stands, since nothing
ends it.
"""

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any

from brain.contained import theirs
from brain.stuck import interrupting

_left: list[object] = []
"""What was given up. It is kept: to be collected it would have to run once more."""


class GivenUp(Exception):
    """It went on after it was cancelled, for longer than it was let."""


class Watched:
    """Await it once for what the coroutine returns. `Stuck` or `GivenUp` else, or what it raises.

    `step`: seconds of one pass. `patience`: seconds from a cancellation until it must have ended.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], *, step: float, patience: float) -> None:
        self._work = work
        self._step = step
        self._patience = patience

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        ending: asyncio.TimerHandle | None = None
        over = False

        def end() -> None:
            nonlocal over
            over = True
            task.cancel()

        go_on = partial(self._work.send, None)
        try:
            while True:
                try:
                    with theirs(), interrupting(self._step):
                        waits_for = go_on()
                except StopIteration as done:
                    return done.value
                try:
                    go_on = partial(self._work.send, (yield waits_for))
                except asyncio.CancelledError as cancelled:
                    if over:
                        _left.append(self._work)
                        raise GivenUp from None
                    if ending is None:
                        ending = asyncio.get_running_loop().call_later(self._patience, end)
                    go_on = partial(self._work.throw, cancelled)
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                    go_on = partial(self._work.throw, error)
        finally:
            if ending is not None:
                ending.cancel()
            if over:
                task.uncancel()
