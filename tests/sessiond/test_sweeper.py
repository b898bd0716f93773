"""The sweeper: removes what is to go, in steps, across restarts, whatever the disk says."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from carpal.errors import refuse
from carpal.status import Reason
from sessiond import sweeper
from sessiond.parts import Parts, running
from sessiond.readers import Readers
from sessiond.rules import removal
from sessiond.sql import erasing
from sessiond.sqlite import checkpoint as sqlite_checkpoint
from sessiond.sqlite.store import SqliteStore
from sessiond.store import StoreFull
from sessiond.sweeper import Sweeper
from tests.pace import SCALE
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, SELF, Desk, message
from tests.sessiond.keeping import begin, delete, fork, import_of, purges, take
from tests.sessiond.rules.test_retention import DAY, keep
from tests.sessiond.test_deadlines import Failing

WAIT = 10.0 * SCALE


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits until SQLite's log may be cut off again."""
    monkeypatch.setattr(sqlite_checkpoint, "ERASE_AGAIN", 0.0)


@pytest.fixture
def failing(store: SqliteStore) -> Failing:
    """The store, whose disk can be full."""
    return Failing(store)


@pytest.fixture
async def parts(failing: Failing) -> AsyncIterator[Parts]:
    async with running(failing, SELF) as parts:  # type: ignore[arg-type]
        yield parts


@contextmanager
def sweeping(sweeper: Sweeper) -> Iterator[None]:
    task = asyncio.create_task(sweeper.run())
    try:
        yield
    finally:
        task.cancel()


async def until_purged(parts: Parts) -> None:
    """The sweeper runs; wait until a commit of its leaves nothing to remove."""
    changed = asyncio.Event()
    parts.writer.listen(lambda _: changed.set())
    async with asyncio.timeout(WAIT):
        while await parts.readers.run(lambda reader: reader.erasable.purges(1)):
            await changed.wait()
            changed.clear()


async def test_a_deletion_wakes_it_and_its_bytes_go_in_steps(
    desk: Desk, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "PURGE_EVENTS", 10)
    desk.create("sesn_1", *(message(f"e{n}") for n in range(95)))
    fork(desk, "sesn_1", 7, "f")
    with sweeping(parts.sweeper):
        await parts.writer.run(lambda tx: removal.delete(tx, ADA, "sesn_1"))
        await until_purged(parts)
    assert len(desk.log("f")) == 7


async def test_what_a_restart_left_undone_is_done_after_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "PURGE_EVENTS", 10)
    desk.create("sesn_1", *(message(f"e{n}") for n in range(95)))
    delete(desk, "sesn_1")
    desk.run(lambda tx: removal.purge(tx, "sesn_1"))
    assert purges(desk) == ["sesn_1"]
    async with running(Failing(desk.store), SELF) as parts:  # type: ignore[arg-type]
        with sweeping(parts.sweeper):
            await until_purged(parts)


async def test_once_an_hour_what_is_too_old_goes_and_the_log_says_why(
    desk: Desk,
    parts: Parts,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sweeper, "AT_ONCE", 2)
    caplog.set_level(logging.INFO, logger="sessiond")
    keep(desk, b'{"maximum_age_days": 10}')
    keep(desk, b'{"hold": true, "maximum_age_days": 10}', workspace="held")
    keep(desk, b"nonsense", workspace="broken")
    for number in range(5):
        desk.create(f"s{number}", message("a"))
    for workspace in ("held", "broken", "elsewhere"):
        desk.create(f"in_{workspace}", message("a"), workspace=workspace)
    assert await parts.sweeper.act()
    clock.advance(10 * DAY)
    desk.append("s3", message("b"))
    clock.advance(1)
    assert await parts.sweeper.act()

    def left() -> list[str]:
        reader = desk.store.reader()
        found = [
            row.session_id
            for workspace in ("default", "held", "broken", "elsewhere")
            for row, _ in reader.page(workspace, before=99, limit=9, archived=True, labels={})
        ]
        reader.close()
        return found

    assert left() == ["s3", "in_held", "in_broken", "in_elsewhere"]
    reasons = [
        (record.__dict__["session_id"], record.__dict__["reason"])
        for record in caplog.records
        if record.message == "session deleted"
    ]
    assert reasons == [(f"s{n}", "older than the workspace keeps them") for n in (0, 1, 2, 4)]
    assert purges(desk) == []
    clock.advance(9 * DAY)
    await parts.sweeper.act()
    clock.advance(DAY - 1)
    await parts.sweeper.act()
    clock.advance(2)
    await parts.sweeper.act()
    assert "s3" in left()  # too old by now, but it looked a moment ago
    clock.advance(3600)
    await parts.sweeper.act()
    assert "s3" not in left()


async def test_an_import_that_stood_still_is_removed(
    desk: Desk, parts: Parts, clock: FakeClock
) -> None:
    desk.create("sesn_1", message("a"), message("b"))
    log = desk.log()
    new = import_of(desk.session(), log)
    begin(desk, new)
    take(desk, new, log[:1])
    await parts.sweeper.act()
    clock.advance(DAY + 1)
    await parts.sweeper.act()
    assert purges(desk) == []
    assert begin(desk, new).head == 0


async def test_on_a_full_disk_it_tries_again_later(
    desk: Desk, parts: Parts, failing: Failing
) -> None:
    desk.create("sesn_1", message("a"))
    delete(desk, "sesn_1")
    failing.error = StoreFull("no room")
    assert not await parts.sweeper.act()
    assert purges(desk) == ["sesn_1"]
    failing.error = None
    assert await parts.sweeper.act()
    assert purges(desk) == []


async def test_damage_that_it_meets_does_not_end_it(parts: Parts) -> None:
    class Damaged(Readers):
        async def run(self, read: Any) -> Any:
            raise refuse(Reason.DATA_CORRUPT, "sessions.db is damaged")

    readers = Damaged(parts.sweeper._store)
    sweeper = Sweeper(parts.sweeper._store, parts.writer, readers)
    assert not await sweeper.act()
    await readers.close()
