"""A game is played by who sees it, and played on from any point of it in a fork."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.mounts import WORKSPACE
from tests.cartridge import GOAL, cartridge
from tests.command import Command
from tests.interaction import player
from tests.interaction.play import Session, session
from tests.interaction.test_mounts import put
from tests.model_endpoint import Asked, Wire, endpoint, events, sse
from tests.world import World, world


def won(memory: str) -> bool:
    """Whether the game's memory says that the block is on the goal, and that it is won."""
    y, x, _, flag = bytes.fromhex(memory.removeprefix("C000: "))
    return (x // 8 * 8, y // 8 * 8, flag) == (*GOAL, 1)


async def answer(wire: Wire, asked: Asked) -> None:
    """What the player does next."""
    blocks = player.reply(asked.body)
    raw = [
        {**block, "raw": json.dumps(block["input"])} if block["type"] == "tool_use" else block
        for block in blocks
    ]
    stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    await wire.head(content_type="text/event-stream")
    await wire.send(sse(events(raw, stop)))


@pytest.fixture(scope="module")
async def arcade(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world whose model plays."""
    state = tmp_path_factory.mktemp("arcade") / "state"
    async with endpoint() as model:
        model.answers = [answer]
        async with world(state, model=model.url) as running:
            yield running


@pytest.mark.timeout(180)
async def test_a_game_is_played_on_in_a_fork_from_a_state_of_the_first_which_then_goes_on_as_it_was(
    arcade: World, tmp_path: Path
) -> None:
    async with arcade.sessions() as stub:
        game = await put(stub, cartridge())
    hand = {"type": "emulator", "resources": [(f"blob:{game}", f"{WORKSPACE}/cartridge.gb")]}
    async with session(arcade, "save", hands=("game",), hand=hand) as made:
        saved = await made.until_type("session.status_idle")
        (state,) = made.data("agent.tool_result")[-1]["attachments"]
        before = len(made.log)
        address = arcade.running["sessiond"].facts["address"]
        environ = {"CARPAL_STATE": str(arcade.state), "CARPAL_SESSIOND": address}
        forked = await Command(tmp_path, environ)(
            "session", "fork", made.session_id, "--at", str(saved.position)
        )
        assert forked.code == 0, forked.stderr
        fork = Session(forked.stdout.strip(), made.stub)
        following = asyncio.create_task(fork.follow())
        try:
            await fork.say("load and play")
            await fork.until_type("session.status_idle", after=saved.position)
        finally:
            following.cancel()
            await asyncio.wait({following})
        own = fork.results()[2:]  # after those it shares
        assert state["blob"].removeprefix("sha256:") in fork.results()[1]
        assert own[0] == "Loaded the state. It is frame 420."
        assert won(own[-1])
        hands = [data["hand_id"] for data in fork.data("hand.provisioned")]
        assert len(set(hands)) == 2, "the fork has a console of its own"

        assert len(made.log) == before, "the fork has written into the log it is of"
        await made.say("play")
        await made.until_type("session.status_idle", after=saved.position)
        screen, *_, memory = made.results()[2:]
        assert screen == "The screen, 640x576 pixels, at frame 420."
        assert won(memory)
        assert len({data["hand_id"] for data in made.data("hand.provisioned")}) == 1
