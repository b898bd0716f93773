"""PostgreSQL's primary dies under load and its synchronous standby takes over: nothing is lost."""

import asyncio
import random
from pathlib import Path

import pytest

from tests import postgres
from tests.pace import times
from tests.robustness.load import load
from tests.robustness.service import service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        postgres.programs() is None,
        reason="PostgreSQL is not on this machine: Debian's package `postgresql` brings it",
    ),
]


@pytest.mark.parametrize("number", range(times(1, 20)))
async def test_with_a_synchronous_standby_no_acknowledged_event_is_lost_with_the_primary(
    tmp_path: Path, chance: random.Random, number: int
) -> None:
    with postgres.cluster() as primary, postgres.standby(primary) as standby:
        primary.database("carpal")
        url = postgres.conninfo(primary, standby, database="carpal")
        async with service(tmp_path, url, processes=2) as it:
            await it.start_all()
            async with load(it, chance) as work:
                for _ in range(chance.randrange(1, 4)):
                    await work.write()
                primary.kill()
                await asyncio.to_thread(standby.promote)
                await work.write()
                # A process may die in what follows; the other one knows the new primary, too.
                await it.kill("s1")
                await work.write()
                await it.start("s1")
                await work.check()
