"""SIGKILL under concurrent writers, again and again: what was acknowledged is there (invariant 2).

And it is there once, in order, without gaps, its chain whole; a tail that lived through all of
it saw each event once. A tenth of the kills hit a process that is only starting.
"""

import asyncio
import random
from pathlib import Path

import pytest

from tests import postgres
from tests.pace import times
from tests.robustness.load import load
from tests.robustness.service import Service, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def test_on_sqlite_what_was_acknowledged_survives_kill_9_at_any_moment(
    tmp_path: Path, chance: random.Random
) -> None:
    async with service(tmp_path) as it:
        await it.start_all()
        async with load(it, chance) as work:
            for _ in range(times(8, 200)):
                await work.write()
                await it.kill()
                if chance.random() < 0.2:
                    await killed_while_it_starts(it, "s1", chance)
                await it.start()
            await work.check()


async def test_on_postgresql_two_processes_are_killed_in_turn_and_nothing_is_lost(
    tmp_path: Path, postgres_url: str, chance: random.Random
) -> None:
    async with service(tmp_path, postgres_url, processes=2) as it:
        await it.start_all()
        async with load(it, chance) as work:
            for number in range(times(6, 200)):
                await work.write()
                name = it.names[number % 2]
                await it.kill(name)
                if chance.random() < 0.2:
                    await work.write()  # the other one goes on
                    await killed_while_it_starts(it, name, chance)
                await it.start(name)
            await work.check()


async def test_on_postgresql_the_database_is_killed_and_nothing_is_lost(
    tmp_path: Path, chance: random.Random
) -> None:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not on this machine: Debian's package `postgresql` brings it")
    with postgres.cluster() as cluster:
        async with service(tmp_path, cluster.database("carpal"), processes=2) as it:
            await it.start_all()
            async with load(it, chance) as work:
                for _ in range(times(2, 100)):
                    await work.write()
                    cluster.kill()
                    await asyncio.to_thread(cluster.start)
                await work.write()
                await work.check()


async def killed_while_it_starts(it: Service, name: str, chance: random.Random) -> None:
    starting = asyncio.create_task(it.start(name))
    await asyncio.wait({starting}, timeout=chance.uniform(0.0, 1.0))
    while not starting.done():  # it may not even have been there to be killed
        for running in it.world.ours:
            if running.child.name == name:
                await running.kill()
        await asyncio.wait({starting}, timeout=0.1)
    if starting.exception() is None:
        await it.kill(name)
