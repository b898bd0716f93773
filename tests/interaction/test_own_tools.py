"""The brain's own tools, and tools that are searched for, on real processes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import Points
from tests.interaction.play import Session, session
from tests.practice import requests_of
from tests.world import World, world


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Points:
    return Points(tmp_path_factory.mktemp("points"))


@pytest.fixture(scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory, points: Points) -> AsyncIterator[World]:
    """A world whose practice model plays the script beside this file."""
    script = Path(__file__).with_name("own_tools.yaml")
    state = tmp_path_factory.mktemp("own") / "state"
    brains = ("b1", "b2")
    async with world(state, brains=brains, scripts=(script,), environ=points.environ) as running:
        yield running


async def offered(it: World) -> list[list[str]]:
    """Names of the tools in each request to the model, oldest first."""
    asked = await requests_of(it.running["practice"].facts["url"])
    return [[tool["name"] for tool in each["body"].get("tools", [])] for each in asked]


def results(made: Session) -> list[dict[str, Any]]:
    return made.data("agent.tool_result")


async def test_of_many_tools_the_model_is_offered_what_it_searched_for_and_may_call_the_others(
    own: World, tmp_path: Path
) -> None:
    agent = {"tools": {"defer_above": 3}}
    async with session(own, "[own] among many tools", tmp_path, agent=agent) as made:
        await made.until_type("session.status_idle")
        (loaded,) = made.data("context.tools_loaded")
        assert loaded["names"] == ["edit"]
        first, second, third = await offered(own)
        own_tools = ["brain__session_search", "brain__session_read", "brain__tool_search"]
        assert first == own_tools
        assert second == third == [*own_tools, "edit"], "at the end, from then on"
        found, written = results(made)
        assert found["content"][0]["text"].startswith("edit: ")
        assert written["outcome"] == "ok"
    assert (tmp_path / "f").read_text() == "not loaded, and called"


async def test_a_brain_killed_with_own_calls_open_is_followed_by_one_that_answers_them(
    own: World, points: Points
) -> None:
    points.arm("brain.intent.appended", "kill")
    agent = {"context": {"policy": "trim"}}
    async with session(own, "[own] look back", agent=agent) as made:
        await made.until_type("session.status_idle")
        assert len(points.taken("brain.intent.appended")) == 1
        uses = [e for e in made.log if e.type == "agent.tool_use"]
        answers = [e for e in made.log if e.type == "agent.tool_result"]
        assert len({e.source for e in (*uses, *answers)}) == 2, "another brain answers"
        found, bad = results(made)
        assert found["content"][0]["text"].startswith("2 user.message ")
        assert (bad["outcome"], found["again"]) == ("error", True)
        assert "around: must be 1 to" in bad["content"][0]["text"]
        assert made.data("hand.provision_requested") == [], "no hand is made for it"
        assert made.data("agent.message")[-1]["content"][0]["text"] == "I looked back."
