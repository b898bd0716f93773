"""A person watches a game that a session plays, takes control of it, and gives it back."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.mounts import WORKSPACE
from tests.cartridge import cartridge
from tests.command import Command
from tests.interaction.play import Session, session
from tests.interaction.test_mounts import put
from tests.interaction.visiting import command
from tests.pace import SCALE
from tests.watcher import key, watcher
from tests.world import World, world

EVERYBODY = 'people = ["view", "control"]\n'
WORDS = "[arcade] switch on"


@pytest.fixture(scope="module")
async def arcade(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world with consoles, whose owner lets people watch and control."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "policy.toml").write_text(EVERYBODY)
    environ = {"CARPAL_POLICY": str(folder / "policy.toml")}
    scripts = (Path(__file__).with_name("arcade.yaml"),)
    async with world(folder / "state", scripts=scripts, environ=environ) as running:
        yield running


@pytest.fixture
def carpal(arcade: World, tmp_path: Path) -> Command:
    """The operator's command."""
    return command(arcade, tmp_path)


@pytest.fixture
async def game(arcade: World) -> AsyncIterator[Session]:
    """A session that switched its console on, and is idle."""
    async with arcade.sessions() as stub:
        digest = await put(stub, cartridge())
    hand = {"type": "emulator", "resources": [(f"blob:{digest}", f"{WORKSPACE}/cartridge.gb")]}
    async with session(arcade, WORDS, hands=("game",), hand=hand) as made:
        await made.until_type("session.status_idle")
        yield made


def place(memory: str) -> tuple[int, int]:
    """Where the block is, across and down."""
    y, x, *_ = bytes.fromhex(memory.removeprefix("C000: "))
    return x, y


async def where(game: Session) -> tuple[int, int]:
    """Where the session finds the block."""
    head = game.log[-1].position
    await game.say("where is it")
    await game.until_type("session.status_idle", head)
    return place(game.results()[-1])


async def test_a_person_takes_control_of_a_game_plays_and_gives_it_back_while_a_call_waits(
    game: Session, carpal: Command
) -> None:
    assert await where(game) == (0, 0)
    async with watcher(carpal, game.session_id) as person:
        before = await person.sees()
        assert before.size == (160, 144)
        assert not (await person.until())["control"]
        await person.take()
        head = game.log[-1].position
        await game.say("where is it")
        await game.until_type("agent.tool_use", head)
        number = person.now["picture"]
        assert (await person.does(*key("ArrowRight", repeats=20))).status == 200
        assert (await person.sees(number)).tobytes() != before.tobytes()
        assert (await person.does(*key("ArrowDown"))).status == 200
        assert not [e for e in game.log if e.position > head and e.type == "agent.tool_result"]
        await person.take(wanted=False)
        await game.until_type("agent.tool_result", head)
    # 6 frames down, 2 for each time that it is still down; the game looks at the next one's begin.
    x, y = place(game.results()[-1])
    assert (x, y) == (46, 6)
    await game.until(lambda e: e.type == "hand.left" and "command" in e.data.decode())
    entered, left = game.data("hand.entered"), game.data("hand.left")
    assert [(each["kind"], each["control"]) for each in entered] == [
        ("view", False),
        ("control", True),
    ]
    assert [each["because"] for each in left] == ["they left", "the person's command ended"]
    assert left[0]["tunnel_id"] == entered[1]["tunnel_id"]


async def test_without_control_nothing_that_a_person_does_reaches_the_game_and_no_time_passes(
    game: Session, carpal: Command
) -> None:
    async with watcher(carpal, game.session_id) as person:
        await person.sees()
        assert (await person.does(*key("ArrowRight", repeats=20))).status == 200
        head = game.log[-1].position
        assert await where(game) == (0, 0), "calls go on beside who watches"
        await game.until_type("session.status_idle", head)
        # What control lets time pass for is a key; to have it is none.
        await person.take()
        await person.take(wanted=False)
    assert await where(game) == (0, 0)


async def test_a_key_that_is_down_when_control_ends_is_up_for_the_next_call(
    game: Session, carpal: Command
) -> None:
    async with watcher(carpal, game.session_id) as person:
        await person.sees()
        await person.take()
        number = person.now["picture"]
        await person.does({"type": "key", "key": "ArrowRight", "down": True})
        await person.sees(number)
        os.kill(person.process.pid, signal.SIGKILL)
    before = await where(game)
    head = game.log[-1].position
    await game.say("switch on")  # and waits for seven seconds of the game
    await game.until_type("session.status_idle", head)
    assert await where(game) == before


async def test_a_key_that_is_no_button_is_said_to_the_person_alone(
    game: Session, carpal: Command
) -> None:
    async with watcher(carpal, game.session_id) as person:
        await person.sees()
        await person.take()
        await person.does(*key("q"))
        await person.hears("no button for the key q")
    assert "no button" not in game.text()


async def test_who_may_watch_may_not_control_unless_the_owner_says_so(
    arcade: World, game: Session, carpal: Command
) -> None:
    policy = arcade.state.parent / "policy.toml"
    daemon = arcade.running["daemon"].process
    try:
        async with watcher(carpal, game.session_id) as person:
            await person.sees()
            await person.take()
            policy.write_text('people = ["view"]\n')
            daemon.send_signal(signal.SIGHUP)
            now = await person.until(control=False)
            assert "the machine's owner ended it: control by a person" in now["words"]
            await person.ask("POST", "/control", {"take": True})
            await person.hears("control by a person is not allowed")
            policy.write_text('people = ["control"]\n')
            daemon.send_signal(signal.SIGHUP)
            await person.until(over=True)
            code, said = await person.ends()
            assert code == 1
            assert "the machine's owner ended it: view by a person is not allowed" in said
        ended = await carpal("hand", "view", game.session_id)
        assert ended.code == 4, ended
        assert str(policy) in ended.stderr
    finally:
        policy.write_text(EVERYBODY)
        daemon.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("who", ["command", "daemon"])
async def test_who_is_killed_while_in_control_gives_it_back_and_the_call_goes_on(
    arcade: World, game: Session, carpal: Command, who: str
) -> None:
    async with watcher(carpal, game.session_id) as person:
        await person.sees()
        await person.take()
        await person.does({"type": "key", "key": "ArrowDown", "down": True})
        head = game.log[-1].position
        await game.say("where is it")
        await game.until_type("agent.tool_use", head)
        if who == "command":
            os.kill(person.process.pid, signal.SIGKILL)
        else:
            await arcade.running["daemon"].kill()
            await arcade.daemon()
        result = await game.until_type("agent.tool_result", head, 40 * SCALE)
    assert place(json.loads(result.data)["content"][0]["text"])[0] == 0
    await game.until(
        lambda _: len(game.data("hand.left")) == 2 == len(game.data("hand.entered")), 0, 40 * SCALE
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_watch_that_a_signal_ends_leaves_no_file_that_leads_to_its_page(
    arcade: World, game: Session, tmp_path: Path, number: signal.Signals
) -> None:
    opened = tmp_path / "temporary"
    opened.mkdir()
    carpal = command(arcade, tmp_path)
    carpal.environ |= {"TMPDIR": str(opened), "BROWSER": f"touch {tmp_path}/opened %s"}
    async with carpal.start("hand", "view", "--open", game.session_id) as process:
        async with asyncio.timeout(40 * SCALE):
            while not (tmp_path / "opened").exists():
                assert process.returncode is None
                await asyncio.sleep(0.05)  # another program makes it
            assert len(list(opened.glob("carpal-view-*/view.html"))) == 1
            process.send_signal(number)
            await process.wait()
        assert process.returncode == 128 + number
    assert list(opened.glob("carpal-view-*")) == []


async def test_nothing_that_a_person_typed_is_in_a_log_or_journal(
    arcade: World, game: Session, carpal: Command
) -> None:
    async with watcher(carpal, game.session_id) as person:
        await person.sees()
        await person.take()
        number = person.now["picture"]
        await person.does(*key("canarykeyname"), *key("ArrowRight"))
        await person.sees(number)
    await game.until(lambda _: len(game.data("hand.left")) == 2)
    found = [
        str(path)
        for path in arcade.state.parent.rglob("*")
        if path.is_file() and b"canarykeyname" in path.read_bytes()
    ]
    assert found == []


async def test_what_is_no_such_hand_has_no_screen_to_watch(arcade: World, carpal: Command) -> None:
    async with session(arcade, "$ echo hi") as made:
        await made.until_type("session.status_idle")
        ended = await carpal("hand", "view", made.session_id)
    assert ended.code != 0
    assert "nobody can enter a process hand by view" in ended.stderr
