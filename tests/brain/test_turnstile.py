"""Of many tasks so many go on in each pass of the loop, in order, and none is forgotten."""

import asyncio

from brain.turnstile import Turnstile


async def test_so_many_go_on_in_each_pass_in_order_and_a_cancelled_one_takes_no_place() -> None:
    turnstile = Turnstile(2)
    gone: list[int] = []

    async def go(number: int) -> None:
        await turnstile.through()
        gone.append(number)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(go(number)) for number in range(7)]
        await asyncio.sleep(0)
        assert gone == [0, 1]
        tasks[3].cancel()
        most = 0
        while not all(task.done() for task in tasks):
            before = len(gone)
            await asyncio.sleep(0)
            most = max(most, len(gone) - before)
    assert gone == [0, 1, 2, 4, 5, 6]
    assert most <= 2


async def test_nobody_waits_while_few_come() -> None:
    turnstile = Turnstile(2)
    for _ in range(5):
        going = turnstile.through()
        try:
            going.send(None)
        except StopIteration:
            await asyncio.sleep(0)
            continue
        raise AssertionError("it waited")
