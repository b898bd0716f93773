"""Backup, go on, restore: every call runs at most once, and the log says what is true."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.interaction.play import HELD, Session, let_go, pipes, session, started
from tests.pace import SCALE
from tests.world import World, world

TERM = 2.0 * SCALE
"""Seconds of a lease here."""


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "state", brains=("b1", "b2"), term=TERM) as running:
        yield running


async def test_a_call_whose_output_was_freed_after_the_backup_is_settled_by_its_outcome(
    it: World, tmp_path: Path
) -> None:
    work = pipes(tmp_path / "work")
    async with session(it, HELD, work) as made:
        await started(work)
        await back_up(it, tmp_path)
        await let_go(work)
        await made.until_type("session.status_idle")
        assert len(effects(work)) == 1
        assert made.results()[0].startswith(effects(work)[0])
        before = await made.lease()
    await restore(it, tmp_path)
    async with followed(it, made) as after:
        await after.until_type("session.status_idle")
        assert (await after.lease()).epoch >> 32 > before.epoch >> 32
    assert len(effects(work)) == 1, "it ran again"
    assert len(after.results()) == 1, after.text()
    (result,) = after.data("agent.tool_result")
    assert result["outcome"] == "ok"
    assert not result["is_error"]
    assert result["content"][0]["text"] == "[ok] it ended as ok; its output was already freed"


async def test_a_call_that_runs_through_a_restore_runs_once_and_gives_its_true_output(
    it: World, tmp_path: Path
) -> None:
    work = pipes(tmp_path / "work")
    async with session(it, HELD, work) as made:
        await started(work)
        await back_up(it, tmp_path)
    await restore(it, tmp_path)
    async with followed(it, made) as after:
        await let_go(work)
        await after.until_type("session.status_idle")
    assert len(effects(work)) == 1, "it ran again"
    (result,) = after.data("agent.tool_result")
    assert result["outcome"] == "ok"
    assert result["content"][0]["text"].startswith(effects(work)[0])


async def back_up(it: World, folder: Path) -> None:
    """Of sessiond, as it serves."""
    state = str(it.state)
    await it.run("sessiond", "backup", "--state-dir", state, "--to", str(folder / "backup.db"))


async def restore(it: World, folder: Path) -> None:
    """In sessiond's place, which then serves again where it did."""
    await it.running["sessiond"].kill(SIGTERM)
    backup = ("--from", str(folder / "backup.db"), "--replace")
    await it.run("sessiond", "restore", "--state-dir", str(it.state), *backup)
    await it.sessiond()


@asynccontextmanager
async def followed(it: World, made: Session) -> AsyncIterator[Session]:
    """The session read anew: what was read before the restore may be undone."""
    async with it.sessions() as stub:
        after = Session(made.session_id, stub)
        following = asyncio.create_task(after.follow())
        try:
            yield after
        finally:
            following.cancel()
            await asyncio.wait({following})


def effects(work: Path) -> list[str]:
    """What happened, a line each."""
    file = work / "effects"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
