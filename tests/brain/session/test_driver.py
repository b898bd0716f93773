"""The driver's view: its own appends come back by the tail, and work stops when it should."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from brain.session.driver import Driver
from brain.session.entries import New
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from tests.brain.stage import WAIT, Stage


async def test_what_is_appended_is_in_the_transcript_when_append_returns(driven: Stage) -> None:
    before = driven.driver.transcript.head
    last = await driven.driver.append(
        New("session.status_running", {}), New("session.status_idle", {})
    )
    assert last == driven.driver.transcript.head == before + 2


async def test_what_is_held_stands_right_before_what_is_appended_next_and_there_once(
    driven: Stage,
) -> None:
    before = await driven.kinds()
    driven.driver.hold(New("session.status_running", {}))
    assert await driven.kinds() == before
    last = await driven.driver.append(New("session.status_idle", {}))
    await driven.driver.append_held()
    assert await driven.kinds() == [*before, "session.status_running", "session.status_idle"]
    assert last == len(before) + 2 == driven.driver.transcript.head


async def test_nothing_is_appended_past_the_lease(driven: Stage) -> None:
    before = await driven.kinds()
    driven.driver.lease.lost.set()
    with pytest.raises(CarpalError) as caught:
        await driven.driver.append(New("session.status_running", {}))
    assert caught.value.reason is Reason.STALE_EPOCH
    assert await driven.kinds() == before


async def test_work_that_ends_first_gives_its_result(driven: Stage) -> None:
    async def work() -> int:
        return 7

    assert await driven.driver.unless(lambda t: False, work()) == 7


async def test_work_is_cancelled_to_its_end_as_soon_as_what_stops_it_is_true(
    driven: Stage,
) -> None:
    cleaned = asyncio.Event()
    began = asyncio.Event()

    async def work() -> int:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return 7

    doing = asyncio.create_task(driven.driver.unless(lambda t: bool(t.interrupted), work()))
    async with asyncio.timeout(WAIT):
        await began.wait()
        await driven.interrupt()
        assert await doing is None
    assert cleaned.is_set()


async def test_what_work_raises_is_raised(driven: Stage) -> None:
    async def work() -> int:
        raise refuse(Reason.DAEMON_NOT_FOUND, "none")

    with pytest.raises(CarpalError, match="none"):
        await driven.driver.unless(lambda t: False, work())


async def test_whoever_gives_up_waiting_cancels_the_work(driven: Stage) -> None:
    cleaned, began = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    doing = asyncio.create_task(driven.driver.unless(lambda t: False, work()))
    await began.wait()
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert cleaned.is_set()


class Away:
    """A sessiond that is away for the first requests of each kind, then the real one."""

    def __init__(self, stub: Any, *refusals: Reason) -> None:
        self._stub = stub
        self._refusals = refusals
        self.asked: list[str] = []

    def takes_the_place_in(self, driver: Driver) -> None:
        """It is asked from now on."""
        vars(driver)["_stub"] = self

    def __getattr__(self, name: str) -> Any:
        refused = self.asked.count(name)
        self.asked.append(name)
        if refused < len(self._refusals):
            reason = self._refusals[refused]
            raise refuse(reason, "not now")
        return getattr(self._stub, name)


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda driver: driver.read(limit=5), "GetEvents"),
        (lambda driver: driver.checkpoint(2), "GetEvents"),
        (lambda driver: driver.keep(b"{}"), "PutBlob"),
    ],
    ids=["read", "checkpoint", "keep"],
)
async def test_a_sessiond_that_is_away_for_a_moment_is_waited_for(
    driven: Stage, ask: Callable[[Driver], Awaitable[object]], kind: str
) -> None:
    away = Away(driven.driver._stub, Reason.UNREACHABLE, Reason.STORE_FULL)
    away.takes_the_place_in(driven.driver)
    async with asyncio.timeout(WAIT):
        assert await ask(driven.driver)
    assert away.asked == [kind] * 3


async def test_nothing_is_waited_for_longer_than_the_lease_lasts(driven: Stage) -> None:
    Away(driven.driver._stub, *[Reason.UNREACHABLE] * 1000).takes_the_place_in(driven.driver)
    reading = asyncio.create_task(driven.driver.read())
    await asyncio.sleep(0)
    driven.driver.lease.lost.set()
    async with asyncio.timeout(WAIT):
        with pytest.raises(CarpalError) as caught:
            await reading
    assert caught.value.reason is Reason.STALE_EPOCH


async def test_a_checkpoint_that_cannot_be_made_is_left_out_and_fails_nothing(
    driven: Stage,
) -> None:
    Away(driven.driver._stub, Reason.INTERNAL).takes_the_place_in(driven.driver)
    assert await driven.driver.checkpoint(2) is None
