"""How many calls go on at a time."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from vault.mcp import slots
from vault.mcp.refusals import Refusal, Why
from vault.mcp.slots import Slots


async def takes(there: Slots, session: str, server: str, most: int = 8) -> AsyncExitStack | None:
    """A place, if there is one now."""
    stack = AsyncExitStack()
    try:
        async with asyncio.timeout(0.05):
            await stack.enter_async_context(there.held(session, server, most))
    except TimeoutError:
        return None
    return stack


async def test_a_session_a_server_and_all_have_their_most() -> None:
    there = Slots(server=3, together=4)
    first, second = await takes(there, "s1", "a", 2), await takes(there, "s1", "a", 2)
    assert first
    assert second
    assert await takes(there, "s1", "a", 2) is None
    third = await takes(there, "s2", "a", 2)
    assert third
    assert await takes(there, "s3", "a", 2) is None
    fourth = await takes(there, "s1", "b", 2)
    assert fourth
    assert await takes(there, "s9", "c", 2) is None
    await third.aclose()
    fifth = await takes(there, "s9", "c", 2)
    assert fifth
    for stack in (first, second, fourth, fifth):
        await stack.aclose()
    assert not there._used
    assert not there._waiting


async def test_who_waits_gets_its_turn_in_order_and_who_leaves_takes_none() -> None:
    there, order = Slots(), []

    async def use(name: int) -> None:
        async with there.held("s", "a", 1):
            order.append(name)
            await asyncio.sleep(0)

    held = await takes(there, "s", "a", 1)
    assert held
    waiting = [asyncio.create_task(use(name)) for name in range(5)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await held.aclose()
    waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == [0, 3, 4]
    assert not there._used
    assert not there._waiting


async def test_who_is_cancelled_as_its_turn_comes_gives_it_on() -> None:
    there = Slots()
    held = await takes(there, "s", "a", 1)
    assert held
    waiting = asyncio.create_task(there.held("s", "a", 1).__aenter__())
    await asyncio.sleep(0)
    await held.aclose()  # its turn has come, and it does not know it yet
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    again = await takes(there, "s", "a", 1)
    assert again
    await again.aclose()


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "WAIT", 0.05)
    there = Slots()
    held = await takes(there, "s", "a", 1)
    assert held
    with pytest.raises(Refusal) as caught:
        await there.held("s", "a", 1).__aenter__()
    assert caught.value.why is Why.AT_CAPACITY
    await held.aclose()
