"""Very many sessions on one brain, all of whose model calls are in flight together."""

import asyncio
import time

from bench.whole import SECONDS, Whole, process_hand

_CREATING = 16
"""Sessions that are being created at any one time."""
_LOOK = 0.2


async def at_once(it: Whole, count: int) -> dict[str, float]:
    """How many of so many were driven at once and finished; and the brain's memory for each.

    The memory is the most it held from the first session to the last one's end, less what it held
    before, when it had driven some.
    """
    for number in range(20):
        made, _ = await it.create(f"bench:before-{number}", {"shell": process_hand()})
        await it.idle([made])
    base = most = it.resident_mb()
    began = time.monotonic()
    numbers = iter(range(count))
    made_all: list[str] = []

    async def create() -> None:
        for number in numbers:
            made, _ = await it.create(f"bench:held-{number}", {"shell": process_hand()})
            made_all.append(made)

    async with asyncio.TaskGroup() as group:
        for _ in range(_CREATING):
            group.create_task(create())
    waiting = 0
    while waiting < count and time.monotonic() < began + SECONDS:
        await asyncio.sleep(_LOOK)  # memory has no event
        waiting = await it.model.waiting()
        most = max(most, it.resident_mb())
    held = time.monotonic()
    print(
        f"{waiting} of {count} model calls in flight together after {held - began:.1f} s; "
        f"the brain holds {most:.0f} MB, {base:.0f} before",
        flush=True,
    )
    finishing = asyncio.create_task(it.idle(made_all))
    await it.model.open()
    while not finishing.done():
        await asyncio.wait({finishing}, timeout=_LOOK)
        most = max(most, it.resident_mb())
    await finishing
    print(
        f"all finished {time.monotonic() - held:.1f} s later; the brain held {most:.0f} MB at most",
        flush=True,
    )
    return {
        "sessions_at_once": waiting,
        "asked_again": await it.model.waiting() - count,
        "mb_per_session": (most - base) / count,
    }
