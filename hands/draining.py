"""The end of a daemon in good order: the calls that run get a while to end, and to be told."""

import asyncio

from hands.inventory import Inventory

_SOON = 0.1
"""Seconds between looks at whether calls run."""
_TOLD = 2.0
"""Seconds for the results of calls that ended to be acknowledged."""


async def calls_over(inventory: Inventory, limit: float) -> bool:
    """Wait until no call runs, and what ended is told, for `limit` seconds; whether that is so."""
    try:
        async with asyncio.timeout(limit):
            while any(keeper.open for keeper in inventory.keepers.values()):  # noqa: ASYNC110
                await asyncio.sleep(_SOON)
            async with asyncio.timeout(_TOLD):
                while any(map(inventory.journal.ended_calls, inventory.keepers)):  # noqa: ASYNC110
                    await asyncio.sleep(_SOON)
    except TimeoutError:
        return not any(keeper.open for keeper in inventory.keepers.values())
    return True
