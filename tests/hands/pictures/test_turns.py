"""Turns of hands: none waits behind one that takes many, and who goes away takes none along."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from hands.pictures.turns import Turns


class Clock:
    """Seconds, as a test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def used(turns: Turns, clock: Clock, whose: str, seconds: float) -> None:
    """A turn that took so long."""
    async with turns.turn(whose, 1):
        clock.now += seconds


async def order(turns: Turns, *names: str) -> list[str]:
    """In which order they have their turns, who came in this one while none was free."""
    had: list[str] = []

    async def one(whose: str) -> None:
        async with turns.turn(whose, 5):
            had.append(whose)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(turns.turn("first", 1))
        tasks = [asyncio.create_task(one(each)) for each in names]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return had


async def test_who_used_least_of_late_is_next_and_of_those_who_came_first(clock: Clock) -> None:
    turns = Turns(1, clock)
    await used(turns, clock, "much", 9)
    await used(turns, clock, "little", 1)
    given = ("much", "much", "little", "new", "other")
    assert await order(turns, *given) == ["new", "other", "little", "much", "much"]


async def test_what_was_used_long_ago_is_forgotten(clock: Clock) -> None:
    turns = Turns(1, clock)
    await used(turns, clock, "much", 9)
    clock.now += 3600
    assert await order(turns, "much", "new") == ["much", "new"]
    assert "much" not in turns._used


async def test_a_hand_has_one_turn_at_a_time_and_others_have_theirs_meanwhile(
    clock: Clock,
) -> None:
    turns = Turns(2, clock)
    async with turns.turn("a", 1):
        with pytest.raises(TimeoutError):
            async with turns.turn("a", 0.05):
                pass
        async with turns.turn("b", 0.05):
            with pytest.raises(TimeoutError):
                async with turns.turn("c", 0.05):
                    pass
    async with turns.turn("c", 0.05), turns.turn("a", 0.05):
        pass


async def test_who_goes_away_just_as_their_turn_comes_leaves_it_to_the_next(clock: Clock) -> None:
    turns = Turns(1, clock)

    async def one() -> None:
        async with turns.turn("b", 5):
            raise AssertionError("it went away")

    async with turns.turn("a", 1):
        going = asyncio.create_task(one())
        await asyncio.sleep(0)
    going.cancel()  # its turn came, and it does not know yet
    with pytest.raises(asyncio.CancelledError):
        await going
    async with turns.turn("c", 0.05):
        pass
