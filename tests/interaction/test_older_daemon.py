"""A brain serves every daemon released in the last twelve months: here one of an older commit."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import orchestrator_pb2 as pb
from tests import older
from tests.interaction.play import (
    HELD,
    SECONDS,
    let_go,
    one_effect,
    pipes,
    session,
    started,
)
from tests.pace import SCALE
from tests.world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    tree = older.tree(older.OLDEST, tmp_path / "older")
    at = older.environ(tree)
    idle = {"CARPAL_HAND_IDLE": "1"}
    state = tmp_path / "state"
    term = 2.0 * SCALE
    async with world(state, brains=("b1", "b2"), term=term, older=at, environ=idle) as it:
        yield it


async def test_an_older_daemon_serves_todays_brain_through_its_death_and_the_hands_release(
    it: World, tmp_path: Path
) -> None:
    """Provision, execute, kill the brain, take the call up at another, release."""
    work = pipes(tmp_path / "work")
    async with session(it, HELD, work) as made:
        await started(work)
        driver = await made.driver()
        await it.running[driver].kill()
        await let_go(work)
        await made.until_type("session.status_idle")
        one_effect(work, made)
        (result,) = made.data("agent.tool_result")
        assert result["outcome"] == "ok", made.text()
        await made.until_type("hand.released")
        assert "hand.lost" not in {event.type for event in made.log}
    async with it.orchestrator("b2" if driver == "b1" else "b1") as other:
        asked = pb.GetDaemonRequest(daemon_id="daemon-1")
        told = await other.GetDaemon(asked, timeout=SECONDS)
    assert (told.daemon.state, told.unanswered) == ("connected", "")
    assert not told.daemon.HasField("supported_until"), "it does not say when it was released"
    assert [each.type for each in told.types] == ["process"]
    assert not told.hands, "nothing is left"
