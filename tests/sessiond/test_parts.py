"""The parts that run beside each other: none ends unnoticed, and leaving closes them all."""

import asyncio
from pathlib import Path

import pytest

from carpal.process import until_stopped
from sessiond.parts import running
from sessiond.sqlite.store import SqliteStore
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import SELF
from tests.sessiond.serving import WAIT


async def test_a_process_that_no_longer_knows_what_others_commit_ends(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(*_: object) -> None:
        raise ZeroDivisionError

    place = tmp_path / "sessions.db"
    store = SqliteStore(place, clock)
    monkeypatch.setattr(store, "follow", follow)
    async with asyncio.timeout(WAIT):
        with pytest.raises(ZeroDivisionError):
            async with running(store, SELF) as parts:
                await until_stopped(asyncio.Event(), parts.following)
    SqliteStore(place, clock).close()


async def test_following_goes_on_until_the_process_ends(tmp_path: Path, clock: FakeClock) -> None:
    async with running(SqliteStore(tmp_path / "sessions.db", clock), SELF) as parts:
        await parts.up_to_date()
        assert not parts.following.done()
    assert parts.following.cancelled()
