"""Harnesses: how one is found, and how its steps are taken.

A harness is somebody's code: it may raise, yield what is no effect, end without
saying that it is done, or not come back. Each ends the drive with a reason that
names the harness; none holds up the sessions that this brain drives beside it.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from brain.contained import contain, theirs
from brain.effect_check import Wrong, check_type
from brain.effects import AsyncHarness, Effect, Harness, HarnessType
from brain.fault import at_fault, checked, raised, told
from brain.session.transcript import Transcript
from brain.stuck import Stuck, interrupting
from brain.watched import GivenUp, Watched
from carpal.errors import CarpalError, refuse
from carpal.status import Reason

DEFAULT = "tool_loop"
GROUP = "carpal.harnesses"
STEP_LIMIT = 2.0
"""Seconds of the event loop that a harness may take to decide what is next."""
CLOSE_LIMIT = 10.0
"""Seconds in which an async harness must have ended, once it is closed or cancelled."""


@cache
def load(name: str) -> HarnessType:
    """The harness an agent names, by entry point `carpal.harnesses`. CONFIG_INVALID else."""
    # Cached: reading the entry points of every installed package takes 5 ms.
    found = entry_points(group=GROUP)
    for entry in found:
        if entry.name == name:
            return _loaded(entry)
    known = ", ".join(sorted(entry.name for entry in found))
    raise refuse(
        Reason.CONFIG_INVALID,
        f"the agent names the harness {name!r}, which is not installed here",
        action=f"use one of: {known}",
    )


def is_ours(kind: HarnessType) -> bool:
    """Whether it is one of this package: such a one changes nothing in its transcript."""
    module = str(getattr(kind.start, "__module__", ""))
    return module.partition(".")[0] == __name__.partition(".")[0]


def _loaded(entry: EntryPoint) -> HarnessType:
    try:
        found = entry.load()
    except BaseException as error:
        raise _no_harness(entry.name, f"cannot be loaded: {told(error)}") from error
    if not isinstance(found, HarnessType):
        raise _no_harness(entry.name, f"is no HarnessType but a {type(found).__name__}")
    try:
        check_type(found)
    except Wrong as wrong:
        raise _no_harness(entry.name, f"is none: {wrong}") from None
    return found


def _no_harness(name: str, what: str) -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID,
        f"the harness {name!r}, an entry point of {GROUP}, {what}",
        action="correct its package, as docs/how-to/write-a-harness.md says",
    )


class Steps:
    """One harness at work: send it a result, get the next effect."""

    def __init__(self, name: str, kind: HarnessType, transcript: Transcript) -> None:
        """`name` is for what is said of it."""
        self._name = name
        self._wait_limit = kind.wait_limit
        self._transcript = transcript
        self._given_up = False
        contain(asyncio.get_running_loop())
        self._harness: Harness | AsyncHarness = self._guarded(lambda: kind.start(transcript))
        if not isinstance(self._harness, Generator | AsyncGenerator):
            raise self._at_fault(f"it is no generator but a {type(self._harness).__name__}")

    @property
    def at_once(self) -> bool:
        """Whether it decides in no time, from what the transcript has."""
        return isinstance(self._harness, Generator)

    async def next(self, result: Any = None) -> Effect:
        """The next effect, given the result of the last one. HARNESS_FAILED for all else."""
        harness = self._harness
        if isinstance(harness, Generator):
            effect = self._guarded(lambda: harness.send(result))
        else:
            waits = f"it asked for nothing for {self._wait_limit:g} s"
            effect = await self._waited(lambda: harness.asend(result), self._wait_limit, waits)
        return checked(self._name, effect, self._transcript)

    async def close(self) -> None:
        """The harness is let go, whatever it was at. HARNESS_FAILED when it does not let go."""
        harness = self._harness
        if isinstance(harness, Generator):
            self._guarded(harness.close)
        elif not self._given_up:
            stays = f"it did not end within {CLOSE_LIMIT:g} s of being closed"
            await self._waited(harness.aclose, CLOSE_LIMIT, stays)

    def _guarded(self, step: Callable[[], Any]) -> Any:
        # Nothing is awaited here: even a CancelledError is the harness's own.
        try:
            with theirs(), interrupting(STEP_LIMIT):
                return step()
        except BaseException as error:
            raise self._blamed(error) from error

    async def _waited(
        self, begin: Callable[[], Coroutine[Any, Any, Any]], limit: float, late: str
    ) -> Any:
        task = asyncio.current_task()
        assert task is not None
        cancelled = task.cancelling()
        try:
            async with asyncio.timeout(limit) as waiting:
                # Its end is ours to wait for, within bounds; the loop's own would have none.
                with _no_hooks():
                    work = begin()
                return await Watched(work, step=STEP_LIMIT, patience=CLOSE_LIMIT)
        except GivenUp:
            self._given_up = True
            why = f"it went on for {CLOSE_LIMIT:g} s after it was cancelled"
            raise self._at_fault(why) from None
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task.cancelling() > cancelled:
                raise
            if isinstance(error, TimeoutError) and waiting.expired():
                raise self._at_fault(late) from None
            raise self._blamed(error) from error

    def _blamed(self, error: BaseException) -> CarpalError:
        if isinstance(error, Stuck):
            return self._at_fault(f"it did not come back within {STEP_LIMIT:.0f} s")
        return raised(self._name, error)

    def _at_fault(self, what: str) -> CarpalError:
        return at_fault(self._name, what)


@contextmanager
def _no_hooks() -> Iterator[None]:
    """An async generator that is begun within is not the event loop's to close."""
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        sys.set_asyncgen_hooks(*before)
