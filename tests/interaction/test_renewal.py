"""Every identity is renewed while a call runs: nothing restarts, and nobody notices."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.tls import IdentityFiles
from tests.interaction.play import SECONDS, let_go, one_effect, pipes, session, started
from tests.pace import SCALE
from tests.world import world

HELD = '$ echo > started; read x < go; echo "effect $(date +%s%N)-$$" | tee -a effects'
LEFT = timedelta(seconds=40 * SCALE)
"""Of the first identities' lives. Streams leave those some 14 s before their end; what a slow
start opens later than that, at the end itself."""
FOLDERS = ("vault", "sessiond", "brain/b1", "brain/b2", "operator")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_identities_that_end_soon_are_replaced_under_a_call_that_runs_and_it_runs_once(
    tmp_path: Path,
) -> None:
    """Servers show the new one, channels dial anew, streams move: no restart, no call lost."""
    began = datetime.now(UTC)
    async with world(tmp_path / "state", brains=("b1", "b2"), left=LEFT) as it:
        work = pipes(tmp_path / "work")
        async with session(it, HELD, work) as made:
            await started(work)
            driver = await made.driver()
            async with asyncio.timeout(LEFT.total_seconds() + SECONDS):
                while not _moved(it.running[driver].log):  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0.05)
            for folder in FOLDERS:
                identity = IdentityFiles(it.state / folder / "identity").load_valid().identity
                assert identity.not_after > began + timedelta(hours=23), folder
            # The first identities are over by now or soon; nothing depends on them any more.
            await let_go(work)
            await made.until_type("session.status_idle")
            one_effect(work, made)
            assert await made.driver() in ("", driver), "another brain took over"
        assert all(one.child.is_alive() for one in it.ours)


def _moved(log: Path) -> bool:
    return "append stream ended" in log.read_text(encoding="utf-8")
