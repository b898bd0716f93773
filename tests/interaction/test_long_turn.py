"""A turn of a hundred calls that outgrows the window: it ends, and the log grows by what is new."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.interaction.play import session
from tests.pace import SCALE
from tests.robustness.minds import SAID_LAST, SUMMARISE, Mind, Step, named, plan, thinking
from tests.robustness.truth import Effects, check_each_call, check_log, check_requests
from tests.world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CALLS = 100
LINES = 2000
"""Of each call's output: 9 KB, so that all are 200,000 tokens and more."""
PARTS = 4
CONTEXT = {"policy": "compact", "instructions": SUMMARISE}
"""As every agent has it; but that the model knows when it is asked for a summary."""
COMPACTED = "agent.thread_context_compacted"


@pytest.fixture
async def mind_in_world(tmp_path: Path) -> AsyncIterator[tuple[Mind, World]]:
    async with thinking() as (mind, url), world(tmp_path / "state", model=url) as it:
        yield mind, it


async def test_a_conversation_of_200k_tokens_with_100_calls_in_one_turn_ends_and_grows_linearly_s05(
    mind_in_world: tuple[Mind, World], tmp_path: Path
) -> None:
    mind, it = mind_in_world
    effects = Effects(tmp_path / "effects")
    calls = [
        effects.command(named(n, 0), 0.0, LINES).removeprefix("$ ") for n in range(CALLS)
    ]  # fmt: skip
    agent = {"system": plan("long", [Step([("", call)]) for call in calls]), "context": CONTEXT}
    async with session(it, "Do as planned.", agent=agent) as made:
        idle = await made.until_type("session.status_idle", seconds=180 * SCALE)
        log = [event for event in made.log if event.position <= idle.position]
        assert SAID_LAST in made.data("agent.message")[-1]["content"][0]["text"]
    check_log(made.session_id, log)
    assert len(check_each_call(log, effects, all_ok=True)) == CALLS
    check_requests(made.session_id, log, mind.sent["long"])
    assert COMPACTED in [e.type for e in log], "it was more than the window holds"
    assert log[-1].type == "session.status_idle"
    # As many bytes for the last calls as for the first, the cut's own aside.
    ends = [i for i, e in enumerate(log) if e.type == "agent.tool_result"][:: CALLS // PARTS]
    slices = [log[a:b] for a, b in zip(ends, [*ends[1:], len(log)], strict=True)]
    sizes = [sum(len(e.data) for e in part if e.type != COMPACTED) for part in slices]
    assert max(sizes) < 1.1 * min(sizes), sizes
    new = sum(len(e.data) for e in log if e.type in ("agent.tool_use", "agent.tool_result"))
    assert sum(len(e.data) for e in log) < 1.3 * new, "more than what the calls and results are"
