"""Planned cuts in the middle of a call: daemons are asked to leave first, and no call is lost."""

import asyncio
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.identity import BACKDATE, Role
from tests.interaction.play import (
    EFFECT,
    HELD,
    SECONDS,
    let_go,
    one_effect,
    pipes,
    session,
    started,
)
from tests.pace import SCALE
from tests.pki import Pki
from tests.world import World, world
from vault.files import VaultFiles
from vault.opened import authority_of

TERM = 20.0 * SCALE
"""Seconds of a lease: far longer than a hand-over takes, so that waiting for one would show."""


@pytest.mark.slow
async def test_a_brain_told_to_stop_in_the_middle_of_a_call_hands_it_over_at_once(
    tmp_path: Path,
) -> None:
    async with world(tmp_path / "state", brains=("b1", "b2"), term=TERM) as it:
        work = pipes(tmp_path / "work")
        async with session(it, HELD, work) as made:
            await started(work)
            began = time.monotonic()
            await it.running[await made.driver()].kill(signal.SIGTERM)
            await let_go(work)
            await made.until_type("session.status_idle")
            assert time.monotonic() - began < TERM, "somebody waited for a lease to expire"
            one_effect(work, made)
            assert [each["outcome"] for each in made.data("agent.tool_result")] == ["ok"]
            assert it.running["daemon"].log.read_text().count("link lost") == 0


@pytest.mark.slow
async def test_links_that_get_old_during_calls_lose_none_of_them_l07(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARPAL_LINK_AGE", str(0.5 * SCALE))
    async with world(tmp_path / "state", brains=("b1", "b2"), term=TERM) as it:
        for number in range(3):
            work = tmp_path / f"work-{number}"
            work.mkdir()
            async with session(it, EFFECT.format(seconds=2.0 * SCALE), work) as made:
                await made.until_type("session.status_idle")
                one_effect(work, made)
                assert [each["outcome"] for each in made.data("agent.tool_result")] == ["ok"]
        log = it.running["daemon"].log.read_text()
        assert log.count("linked") > 6, "no link got old"
        assert "link lost" not in log, "a link was cut rather than left"


@pytest.mark.slow
async def test_a_brain_whose_certificate_ends_drains_its_links_first_and_the_call_goes_on(
    tmp_path: Path,
) -> None:
    """The daemon comes back to the brain's next certificate, and was never cut."""
    life = timedelta(seconds=10 * SCALE)
    async with world(tmp_path / "state", term=TERM, fronted=True) as it:
        work = pipes(tmp_path / "work")
        daemon = it.running["daemon"].log
        async with session(it, HELD, work) as made:
            await started(work)
            ends = datetime.now(UTC) + life
            _renew(it, ends - life, ends)
            it.fronts["b1"].cut()
            await _links(daemon, 2)
            _renew(it, datetime.now(UTC) - BACKDATE, ends + timedelta(days=1))
            await _links(daemon, 3)
            assert datetime.now(UTC) < ends, "it was cut, not drained"
            # The call outlives the certificate under which it was asked for.
            await asyncio.sleep((ends - datetime.now(UTC)).total_seconds())
            await let_go(work)
            await made.until_type("session.status_idle")
            one_effect(work, made)
            assert [each["outcome"] for each in made.data("agent.tool_result")] == ["ok"]
        assert daemon.read_text().count("link lost") == 1, "the one we cut"


def _renew(it: World, start: datetime, end: datetime) -> None:
    """Give the brain another certificate, as its renewal does."""
    pki = Pki(it.state)
    pki.authority = authority_of(VaultFiles(it.state))
    folder = it.state / "brain" / "b1" / "identity"
    pki.issue(Role.BRAIN, "b1", not_before=start, not_after=end, directory=folder)


async def _links(daemon: Path, count: int) -> None:
    """Until the daemon has linked so often."""
    async with asyncio.timeout(SECONDS):
        while daemon.read_text().count(" linked ") < count:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.05)
