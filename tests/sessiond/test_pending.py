"""What a watcher has not read: merged by key, in order, never lost."""

import asyncio

from carpal.status import Reason
from sessiond.pending import Pending, Watchers
from tests.pace import SCALE
from tests.sessiond.desk import refused

WAIT = 10.0 * SCALE


async def test_values_are_merged_by_key_and_keep_their_turn() -> None:
    pending: Pending[str, int] = Pending()
    for key, value in [("a", 1), ("b", 1), ("a", 2), ("c", 1)]:
        pending.put(key, value)
    pending.discard("b")
    assert await pending.take(1) == [("a", 2)]
    pending.put("a", 3)
    assert await pending.take(10) == [("c", 1), ("a", 3)]
    assert pending.take_now(10) == []


async def test_taking_waits_for_the_next_value() -> None:
    pending: Pending[str, int] = Pending()
    taking = asyncio.create_task(pending.take(10))
    await asyncio.sleep(0)
    pending.put("gone", 1)
    pending.discard("gone")
    await asyncio.sleep(0)
    assert not taking.done()
    pending.put("a", 1)
    async with asyncio.timeout(WAIT):
        assert await taking == [("a", 1)]


async def test_closing_ends_a_wait_and_refuses_the_next() -> None:
    watchers: Watchers[str, int] = Watchers()
    with watchers.join(lambda value: True) as pending:
        taking = asyncio.create_task(pending.take(10))
        await asyncio.sleep(0)
        watchers.close()
        async with asyncio.timeout(WAIT):
            with refused(Reason.UNAVAILABLE):
                await taking
    with watchers.join(lambda value: True) as late:
        async with asyncio.timeout(WAIT):
            with refused(Reason.UNAVAILABLE):
                await late.take(10)


async def test_each_watcher_hears_what_it_wants_until_it_leaves() -> None:
    watchers: Watchers[str, int] = Watchers()
    with watchers.join(lambda value: value > 1) as large, watchers.join(lambda value: True) as all:
        watchers.tell("a", 1)
        watchers.tell("b", 2)
        assert large.take_now(10) == [("b", 2)]
        assert all.take_now(10) == [("a", 1), ("b", 2)]
    watchers.tell("c", 3)
    assert large.take_now(10) == []
