"""What a task of somebody's own raises ends that task, and never this process.

asyncio lets `SystemExit` and `KeyboardInterrupt` of any task end the whole loop. A task
that was made while a harness was at work, by it or by a task of its own, has them turned
into an error like any other: whoever awaits the task is told, and the log of this brain.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_theirs: ContextVar[bool] = ContextVar("_theirs", default=False)
"""The code that runs is a harness's. A task inherits it from whoever made it."""


class Ended(RuntimeError):
    """Raised in place of what would end the process."""


@contextmanager
def theirs() -> Iterator[None]:
    """The block is a harness's; not to be awaited in."""
    token = _theirs.set(True)
    try:
        yield
    finally:
        _theirs.reset(token)


def contain(loop: asyncio.AbstractEventLoop) -> None:
    """From now on, what a harness's own tasks on this loop raise is contained."""
    before = loop.get_task_factory()
    if getattr(before, "contains", False):
        return
    make: Callable[..., Any] = before or _task

    def factory(on: asyncio.AbstractEventLoop, work: Any, **more: Any) -> Any:
        if _theirs.get() and asyncio.iscoroutine(work):
            work = _contained(work)
        return make(on, work, **more)

    factory.contains = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)


def _task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Task[Any]":
    return asyncio.Task(work, loop=loop, **more)


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise Ended(f"a task of the harness raised {type(error).__name__}: {error}") from error
