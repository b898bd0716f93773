"""A fork goes on from another session's log, and does nothing for it."""

import asyncio
from pathlib import Path

from carpal.ids import new_id
from carpal.v1 import session_pb2
from tests.interaction.play import (
    HELD,
    SECONDS,
    Session,
    let_go,
    one_effect,
    pipes,
    session,
    started,
)
from tests.world import World


async def test_a_call_that_is_open_at_a_fork_stays_the_other_sessions(
    whole: World, tmp_path: Path
) -> None:
    work = pipes(tmp_path / "work")
    async with session(whole, HELD, work) as made:
        await started(work)
        head = len(made.log)
        fork = Session(new_id("sesn"), made.stub)
        request = session_pb2.ForkSessionRequest(
            source_session_id=made.session_id, position=head, session_id=fork.session_id
        )
        await made.stub.ForkSession(request, timeout=SECONDS)
        following = asyncio.create_task(fork.follow())
        try:
            await fork.say("$ echo own")
            await fork.until_type("session.status_idle", after=head)
            await let_go(work)
            await made.until_type("session.status_idle")
        finally:
            following.cancel()
            await asyncio.wait({following})
        one_effect(work, made)
        parted, own = fork.data("agent.tool_result")
        assert parted["outcome"] == "not_inherited"
        assert own["outcome"] == "ok"
        assert own["content"][0]["text"].startswith("own")
        hands = {data["hand_id"] for data in fork.data("hand.provisioned")}
        assert len(hands) == 2, "the fork has a hand of its own"
        assert [e.hash for e in fork.log[:head]] == [e.hash for e in made.log[:head]]
