"""OAuth: what a hundred callers cost whose access token has just expired."""

import asyncio
import tempfile
import time
from pathlib import Path

from tests.vault.oauth.kept import KEY
from tests.vault.oauth.world import world

CALLERS = 100


async def refreshed() -> dict[str, float]:
    """Requests to the authorization server, and milliseconds until all have the new token."""
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder)) as there:
            there.enrol()
            began = time.perf_counter()
            given = await asyncio.gather(*(there.engine.fresh(KEY) for _ in range(CALLERS)))
            took = time.perf_counter() - began
            if {each.generation for each in given} != {given[0].generation}:
                raise RuntimeError("some callers have another token than the others")
            return {
                "refresh_posts_for_100_callers": len(there.login.posts),
                "refresh_for_100_callers_ms": round(1000 * took, 1),
            }
