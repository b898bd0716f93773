"""The timer: a dead driver's session is offered again within one term, without polling (S06)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sessiond.board import Offers
from sessiond.clock import SECOND, SystemClock
from sessiond.deadlines import PAUSE
from sessiond.parts import Parts, running
from sessiond.rows import Changes
from sessiond.rules.leases import Wanted
from sessiond.rules.runnable import Try
from sessiond.store import Store, StoreBroken, StoreFull
from tests.pace import SCALE
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import BRAIN, SELF, Desk, message

WAIT = 10.0 * SCALE


@pytest.fixture
async def parts(desk: Desk, clock: FakeClock) -> AsyncIterator[Parts]:
    desk.create("sesn_1", message("a"), wake=True)
    async with running(NotClosed(desk.store), SELF) as parts:  # type: ignore[arg-type]
        yield parts


class NotClosed:
    """The fixture's store, which its own fixture closes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def close(self) -> None:
        pass


class Failing(NotClosed):
    """A store whose disk can be full, or break."""

    error: Exception | None = None

    def commit(self) -> Changes:
        if self.error is not None:
            raise self.error
        return self._store.commit()


async def acquire(parts: Parts, term: float = 10.0) -> int:
    wanted = Wanted("session/sesn_1", term=int(term * SECOND))
    held = await parts.writer.run(lambda tx: parts.rules.acquire(tx, BRAIN, wanted))
    return held.lease.epoch


async def offer(offers: Offers) -> list[str]:
    async with asyncio.timeout(WAIT):
        return [id for id, _ in await offers.take(10)]


async def test_a_lease_that_was_never_used_is_offered_again_at_its_expiry_s06_s14(
    parts: Parts, clock: FakeClock
) -> None:
    with parts.board.watch(frozenset()) as offers, parts.table.watch(lambda row: True) as leases:
        assert await offer(offers) == ["sesn_1"]
        await acquire(parts)
        clock.advance(9.999)
        await parts.deadlines.act()
        assert offers.take_now(10) == []
        clock.advance(0.001)
        await parts.deadlines.act()
        assert await offer(offers) == ["sesn_1"]
        states = [row.state.name for _, row in leases[1].take_now(10)]
        assert states == ["EXPIRED"]


async def test_a_full_disk_delays_the_end_of_leases_and_ends_nothing_else(
    desk: Desk, clock: FakeClock
) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    desk.create("sleeping", message("a"), wake=True)
    epoch = desk.acquire("session/sleeping").lease.epoch
    desk.release("session/sleeping", epoch, 1, wake_at=clock.wall() + 10 * SECOND)
    store = Failing(desk.store)
    async with running(store, SELF) as parts:  # type: ignore[arg-type]
        await acquire(parts)
        with parts.board.watch(frozenset()) as offers:
            store.error = StoreFull("no room")
            clock.advance(10)
            await parts.deadlines.act()
            assert await offer(offers) == ["sleeping"]
            store.error = None
            clock.advance(PAUSE / SECOND)
            await parts.deadlines.act()
            assert await offer(offers) == ["sesn_1"]


async def test_a_broken_store_is_for_the_writer_to_say(desk: Desk, clock: FakeClock) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    store = Failing(desk.store)
    async with running(store, SELF) as parts:  # type: ignore[arg-type]
        await acquire(parts)
        store.error = StoreBroken("the disk is gone")
        clock.advance(10)
        await parts.deadlines.act()
        with pytest.raises(StoreBroken, match="the disk is gone"):
            async with asyncio.timeout(WAIT):
                await parts.writer.until_broken()
    desk.store.rollback()


async def test_many_leases_that_expire_at_once_all_end(parts: Parts, clock: FakeClock) -> None:
    for number in range(1200):
        wanted = Wanted(f"daemon/d{number}", workspace="w")
        await parts.writer.run(lambda tx, wanted=wanted: parts.rules.acquire(tx, BRAIN, wanted))  # type: ignore[misc]
    clock.advance(10)
    await parts.deadlines.act()
    assert parts.table.next_expiry() is None


async def test_after_a_start_live_leases_and_work_are_known(desk: Desk, clock: FakeClock) -> None:
    desk.create("driven", message("a"), wake=True)
    desk.create("waiting", message("a"), wake=True)
    desk.create("sleeping", message("a"), wake=True)
    desk.acquire("session/driven")
    epoch = desk.acquire("session/sleeping").lease.epoch
    desk.release("session/sleeping", epoch, 1, wake_at=clock.wall() + 60 * SECOND)
    clock.advance(9)
    async with running(NotClosed(desk.store), SELF) as parts:  # type: ignore[arg-type]
        with parts.board.watch(frozenset()) as offers:
            assert await offer(offers) == ["waiting"]
            clock.advance(9.5)  # one full term from the start, whatever was left of the old
            await parts.deadlines.act()
            assert offers.take_now(10) == []
            clock.advance(0.5)
            await parts.deadlines.act()
            assert await offer(offers) == ["driven"]
            clock.advance(41)
            await parts.deadlines.act()
            assert await offer(offers) == ["sleeping"]


async def test_the_timer_sleeps_until_a_deadline_and_is_woken_when_one_moves(
    desk: Desk,
) -> None:
    # The machine's clock: this is the one test that lets half a second pass.
    desk.store.clock = SystemClock()
    desk.create("sesn_1", message("a"), wake=True)
    async with running(NotClosed(desk.store), SELF) as parts:  # type: ignore[arg-type]
        timer = asyncio.create_task(parts.deadlines.run())
        with parts.board.watch(frozenset()) as offers:
            assert await offer(offers) == ["sesn_1"]
            await acquire(parts, term=0.5)
            assert await offer(offers) == ["sesn_1"]
            epoch = await acquire(parts)
            wake_at = parts.clock.wall() + SECOND // 10
            end = Try(1, wake_at=wake_at)
            await parts.writer.run(
                lambda tx: parts.rules.release(tx, BRAIN, "session/sesn_1", epoch, end)
            )
            assert await offer(offers) == ["sesn_1"]
            assert parts.clock.wall() >= wake_at
        timer.cancel()
