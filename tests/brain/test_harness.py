"""A harness is somebody's code: whatever it does, the drive ends with a reason that names it."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from brain import harness, stuck
from brain.effects import Effect, Emit, Finish, HarnessType
from brain.harness import Steps, load
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from tests.brain.logs import Log
from tests.brain.stage import WAIT

VERSIONLESS = HarnessType(None, lambda _: iter(()))  # type: ignore[arg-type,return-value]


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


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("nowhere.at.all:HARNESS", "it raised ModuleNotFoundError"),
        ("brain.harness:NOTHING", "it raised AttributeError"),
        ("brain.harness:GROUP", "is no HarnessType but a str"),
        ("tests.brain.test_harness:VERSIONLESS", "version: must be a text"),
    ],
)
def test_an_entry_point_that_is_no_harness_is_named_with_what_it_is(
    monkeypatch: pytest.MonkeyPatch, entry: str, says: str
) -> None:
    found = [EntryPoint("odd", entry, harness.GROUP)]
    monkeypatch.setattr(harness, "entry_points", lambda group: found)
    with pytest.raises(CarpalError, match=r"the harness 'odd'.*") as caught:
        load("odd")
    assert says in caught.value.message


async def test_what_it_yields_is_checked_before_it_is_performed() -> None:
    def beyond(_: Any) -> Iterator[Effect]:
        yield Finish("end_turn", through=1_000_000)

    assert "it yielded Finish.through: must be" in await fault(beyond)


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


def raising(error: BaseException) -> Any:
    """A harness that raises this, at its first step."""

    def raises(_: Any) -> Iterator[Effect]:
        yield thrown(error)

    return raises


def raising_async(error: BaseException) -> Any:
    """The same, of an async one."""

    async def raises(_: Any) -> AsyncGenerator[Effect, Any]:
        yield thrown(error)

    return raises


def thrown(error: BaseException) -> Effect:
    """None: this is raised."""
    raise error


ENDS = (SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError())


@pytest.mark.parametrize("kind", [raising, raising_async])
@pytest.mark.parametrize("error", ENDS, ids=repr)
async def test_one_that_raises_what_ends_programs_and_tasks_is_named_and_ends_neither(
    kind: Any, error: BaseException
) -> None:
    assert f"it raised {type(error).__name__}" in await fault(kind(error))


async def test_a_harness_does_not_say_that_a_lease_is_over() -> None:
    await fault(raising(refuse(Reason.STALE_EPOCH, "the lease is over")))


async def test_what_is_told_of_an_error_is_a_line_that_can_be_sent() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert "it raised Mute: (its text" in await fault(raising(Mute()))
    said = await fault(raising(ValueError("a\n\ud800" + "x" * 100_000)))
    assert "\n" not in said
    assert len(said.encode()) < 1_000


async def test_a_loop_that_swallows_what_interrupts_it_is_interrupted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "STEP_LIMIT", 0.2)

    def forever(_: Any) -> Iterator[Effect]:
        for turn in itertools.count():
            try:
                assert turn >= 0
                sum(range(100))
            except:  # noqa: E722 - as some harness may
                pass
        yield Finish("end_turn")

    assert "did not come back" in await fault(forever)


async def test_an_async_harness_that_spins_is_interrupted_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "STEP_LIMIT", 0.2)

    async def spins(_: Any) -> AsyncGenerator[Effect, Any]:
        await asyncio.sleep(0)
        for _turn in itertools.count():
            pass
        yield Finish("end_turn")

    assert "did not come back" in await fault(spins)


async def test_a_step_that_slept_beyond_its_limit_and_came_back_ends_the_drive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "STEP_LIMIT", 0.2)
    monkeypatch.setattr(stuck, "_watch", stuck._Watch())

    def sleeps(_: Any) -> Iterator[Effect]:
        time.sleep(0.7)
        yield Finish("end_turn")

    assert "did not come back" in await fault(sleeps)


async def test_an_async_harness_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "CLOSE_LIMIT", 0.1)

    async def stays(_: Any) -> AsyncGenerator[Effect, Any]:
        try:
            yield Emit("x")
        finally:
            await asyncio.Event().wait()

    staying = steps(stays)
    await staying.next()
    async with asyncio.timeout(WAIT):
        with pytest.raises(CarpalError, match=r"'odd' .* did not end within 0\.1 s"):
            await staying.close()


async def test_an_async_harness_that_swallows_its_cancellation_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "CLOSE_LIMIT", 0.1)
    begun = asyncio.Event()

    async def swallows(_: Any) -> AsyncGenerator[Effect, Any]:
        for _turn in itertools.count():
            begun.set()
            try:
                await asyncio.Event().wait()
            except BaseException:  # noqa: BLE001 - as some harness may
                continue
        yield Finish("end_turn")

    holding = steps(swallows)
    drive = asyncio.create_task(holding.next())
    async with asyncio.timeout(WAIT):
        await begun.wait()
        drive.cancel()
        with pytest.raises(CarpalError, match=r"'odd' .* went on for 0\.1 s after"):
            await drive
        await holding.close()


async def test_a_drive_that_is_cancelled_cancels_its_async_harness() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits(_: Any) -> AsyncGenerator[Effect, Any]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        yield Finish("end_turn")

    drive = asyncio.create_task(steps(waits).next())
    await begun.wait()
    drive.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drive
    assert ended.is_set()


def test_one_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(CarpalError) as caught:
        load("other")
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert "other" in caught.value.message
