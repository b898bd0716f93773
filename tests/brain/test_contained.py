"""What would end the brain ends the task of a harness that raises it, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from brain.contained import Ended
from brain.effects import Effect, Finish, Harness, HarnessType, Sleep
from brain.harness import Steps
from tests.brain.logs import Log

ENDS = (SystemExit(3), KeyboardInterrupt())
made: "list[asyncio.Task[None]]" = []


async def ends(error: BaseException) -> None:
    """Raise it, once the loop has come by."""
    await asyncio.sleep(0)
    raise error


async def makes(error: BaseException) -> None:
    """A task that makes another, which raises."""
    made.append(asyncio.create_task(ends(error)))
    await asyncio.sleep(0)


def told(task: "asyncio.Task[Any]") -> str:
    """What became of a task that raised."""
    error = task.exception()
    assert isinstance(error, Ended)
    return str(error)


@pytest.fixture(autouse=True)
def anew() -> None:
    """No tasks of an earlier test."""
    made.clear()


@pytest.mark.parametrize("error", ENDS, ids=repr)
@pytest.mark.parametrize("begins", [ends, makes])
async def test_what_a_task_of_an_async_harness_raises_ends_that_task_alone(
    error: BaseException, begins: Any
) -> None:
    async def starts(_: Any) -> AsyncGenerator[Effect, Any]:
        made.append(asyncio.create_task(begins(error)))
        await asyncio.wait(made)
        yield Sleep(1)
        yield Finish("end_turn")

    steps = Steps("odd", HarnessType("1", starts), Log().transcript)
    assert await steps.next() == Sleep(1)
    await asyncio.wait(made)
    assert told(made[-1]).startswith(f"a task of the harness raised {type(error).__name__}")
    assert await steps.next() == Finish("end_turn")
    await steps.close()


async def test_also_one_that_a_plain_harness_made() -> None:
    def starts(_: Any) -> Harness:
        made.append(asyncio.create_task(ends(SystemExit(3))))
        yield Finish("end_turn")

    steps = Steps("odd", HarnessType("1", starts), Log().transcript)
    await steps.next()
    await asyncio.wait(made)
    assert told(made[0]) == "a task of the harness raised SystemExit: 3"


async def test_a_task_that_is_not_a_harnesss_is_made_as_ever() -> None:
    Steps("odd", HarnessType("1", lambda _: iter_none()), Log().transcript)
    work = ends(ValueError("mine"))
    task = asyncio.create_task(work, name="mine")
    await asyncio.wait({task})
    assert task.get_coro() is work
    assert task.get_name() == "mine"
    assert isinstance(task.exception(), ValueError)


def iter_none() -> Harness:
    """A harness of no steps."""
    yield from ()
