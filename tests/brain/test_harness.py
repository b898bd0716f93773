"""A harness is somebody's code: whatever it does, the drive ends with a reason that names it."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import pytest

from brain import harness
from brain.effects import Effect, Emit, Finish, HarnessType
from brain.harness import Steps, load
from carpal.errors import CarpalError
from carpal.status import Reason
from tests.brain.logs import Log


def steps(start: Any) -> Steps:
    """A harness of a test, about to begin."""
    return Steps("odd", HarnessType("1", start), Log().transcript)


async def fault(start: Any) -> str:
    """What is said of a harness at its first step."""
    with pytest.raises(CarpalError) as caught:
        await steps(start).next()
    assert caught.value.reason is Reason.HARNESS_FAILED
    assert "'odd'" in caught.value.message
    return caught.value.message


async def test_one_that_raises_is_named_with_what_it_raised() -> None:
    def raises(_: Any) -> Iterator[Effect]:
        yield Finish(str(int("no such luck")))

    assert "ValueError: invalid literal" in await fault(raises)


async def test_one_that_yields_no_effect_is_named() -> None:
    def nonsense(_: Any) -> Iterator[Any]:
        yield "run it"

    assert "no effect but a str" in await fault(nonsense)


async def test_one_that_ends_without_finishing_is_named() -> None:
    def empty(_: Any) -> Iterator[Any]:
        yield from ()

    assert "without a Finish" in await fault(empty)


async def test_one_that_is_no_generator_is_named() -> None:
    with pytest.raises(CarpalError, match="no generator but a int"):
        await steps(lambda _: 7).next()


async def test_one_that_never_comes_back_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "STEP_LIMIT", 0.2)

    def forever(_: Any) -> Iterator[Effect]:
        for turn in itertools.count():
            try:
                assert turn >= 0
            except Exception:  # noqa: BLE001 - as some harness may
                continue
        yield Finish("end_turn")

    assert "did not come back" in await fault(forever)


async def test_what_comes_after_a_step_that_took_long_is_not_interrupted() -> None:
    def fine(_: Any) -> Iterator[Effect]:
        assert (yield Emit("x")) == 3
        yield Finish("end_turn")

    good = steps(fine)
    assert await good.next() == Emit("x")
    assert await good.next(3) == Finish("end_turn")
    await good.close()


async def test_an_async_harness_is_sent_results_and_let_go_like_any_other() -> None:
    let_go = []

    async def waits(_: Any) -> AsyncIterator[Effect]:
        try:
            assert (yield Emit("x")) == 3
            yield Emit("y")
        finally:
            let_go.append(True)

    good = steps(waits)
    assert await good.next() == Emit("x")
    assert await good.next(3) == Emit("y")
    await good.close()
    assert let_go


async def test_an_async_harness_that_asks_for_nothing_is_given_up() -> None:
    async def waits(_: Any) -> AsyncGenerator[Effect, Any]:
        await asyncio.Event().wait()
        yield Finish("end_turn")

    patient = HarnessType("1", waits, wait_limit=0.05)
    with pytest.raises(CarpalError, match=r"asked for nothing for 0\.05 s"):
        await Steps("odd", patient, Log().transcript).next()


def test_one_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(CarpalError) as caught:
        load("other")
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert "other" in caught.value.message
