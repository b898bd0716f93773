"""The hand type `emulator`: a game is played by what its tools say, and time is theirs alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools._toolsets._computer_inputs import COMPUTER_INPUT_TYPES

from carpal import extras
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands import attachments
from hands.api import describe
from hands.emulator.hand import Emulator
from hands.emulator.states import State, packed, unpacked
from tests.cartridge import GOAL, PRESSES, WON, X, Y, cartridge
from tests.command import ROOT
from tests.hands.emulator.conftest import Arcade, Console
from tests.hands.place import until
from tests.pace import SCALE

BOOTS = 400
"""Frames that pass before the game begins."""
LIGHT, DARK = (255, 255, 255), (0, 0, 0)


@pytest.mark.parametrize("name", ["screenshot", "zoom", "key", "hold_key", "wait"])
def test_a_computer_tools_member_takes_exactly_what_claude_was_taught(name: str) -> None:
    (told,) = [each for each in describe(Emulator)["tools"] if each["name"] == name]
    known = COMPUTER_INPUT_TYPES[name].model_json_schema()
    ours = told["input_schema"]

    def kind(part: dict[str, Any]) -> Any:
        plain = next((each for each in part.get("anyOf", ()) if each != {"type": "null"}), part)
        return plain["type"], plain.get("items")

    assert {field: kind(part) for field, part in ours["properties"].items()} == {
        field: kind(part) for field, part in known["properties"].items()
    }
    assert set(ours["required"]) == set(known.get("required", ()))


async def test_a_game_is_played_to_its_goal_as_its_memory_and_its_screen_show(
    console: Console,
) -> None:
    await console.does("press", buttons=[], frames=BOOTS)
    before = await console.picture()
    await console.does("hold_key", text="Right", duration=1)
    await console.does("press", buttons=["right"], frames=GOAL[0] - 60)
    await console.does("press", buttons=["down"], frames=GOAL[1])
    assert await console.memory(Y, 4) == [GOAL[1], GOAL[0], 0, 1]
    await console.does("key", text="a", repeat=3)
    assert await console.memory(PRESSES) == [3]
    after = await console.picture()
    assert before.size == after.size == (640, 576)
    corner = (639, 575)
    assert (before.getpixel(corner), after.getpixel(corner)) == (LIGHT, DARK)
    block = (GOAL[0] * 4 + 16, GOAL[1] * 4 + 16)
    assert after.getpixel(block) == LIGHT


async def test_time_passes_in_calls_alone_and_as_much_as_they_say(console: Console) -> None:
    frames = 0
    calls: list[tuple[str, dict[str, Any], int]] = [
        ("screenshot", {}, 0),
        ("wait", {"duration": 2}, 120),
        ("zoom", {"region": [0, 0, 10, 10]}, 0),
        ("key", {"text": "Up"}, 12),
        ("key", {"text": "Up+a", "repeat": 3}, 36),
        ("hold_key", {"text": "Return", "duration": 1}, 61),
        ("press", {"buttons": ["a", "b"], "frames": 7}, 7),
        ("save_state", {}, 0),
        ("read_memory", {"address": 0xC000}, 0),
    ]
    for tool, given, takes in calls:
        said = await console.does(tool, **given)
        frames += takes
        if tool != "read_memory":
            assert f"frame {frames}" in said, (tool, said)
    assert "Pressed Up." in await console.does("key", text="Up")
    assert "Waited 1s." in await console.does("wait", duration=1)
    assert "Held b for 1s." in await console.does("hold_key", text="b", duration=1)


async def test_the_same_calls_come_to_the_same_picture_and_memory(arcade: Arcade) -> None:
    seen = []
    for _ in range(2):
        console = await arcade.console()
        await console.does("press", buttons=[], frames=BOOTS)
        await console.does("key", text="Down+Right", repeat=5)
        found, _path = await console.attached("screenshot")
        seen.append((found.digest, await console.memory(Y, 8)))
    assert seen[0] == seen[1]
    assert seen[0][1][:2] == [30, 30]


async def test_a_zoom_shows_a_part_of_the_screenshot_larger(console: Console) -> None:
    await console.does("press", buttons=[], frames=BOOTS)
    whole = await console.picture()
    part = await console.picture("zoom", region=[0, 0, 64, 64])  # the block is 32x32 there
    assert part.size == (576, 576)
    assert part.getpixel((280, 280)) == whole.getpixel((28, 28)) == DARK
    assert part.getpixel((300, 300)) == whole.getpixel((36, 36)) == LIGHT


async def test_what_is_asked_wrongly_says_what_would_be_right(console: Console) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("key", {"text": "F5"}, "there is no key 'F5'; there are Up, Down, Left, Right, a, b"),
        ("key", {"text": "Up+"}, "there is no key ''"),
        ("hold_key", {"text": "q", "duration": 1}, "there is no key 'q'"),
        ("key", {"text": "a", "repeat": 0}, "repeat: 0 is not 1 to 100"),
        ("wait", {"duration": 101}, "duration: 101 is not 1 to 100"),
        ("press", {"buttons": [], "frames": 6001}, "frames: 6001 is not 1 to 6000"),
        ("zoom", {"region": [0, 0, 700, 10]}, "is no rectangle of a screenshot of 640x576"),
        ("zoom", {"region": [5, 5, 5, 9]}, "is no rectangle"),
        ("zoom", {"region": [1, 2]}, "must be four numbers"),
        ("read_memory", {"address": 65536}, "address: 65536 is not 0 to 65535"),
        ("read_memory", {"address": 65535, "length": 2}, "length: 2 is not 1 to 1"),
    ]
    for tool, given, says in wrong:
        assert says in await console.fails(tool, **given), tool
    with pytest.raises(CarpalError) as caught:
        await console.call("press", buttons=["x"], frames=1)
    assert caught.value.fields["field"] == "buttons[0]"
    assert "frame 0" in await console.does("screenshot")


GAME = cartridge()
NO_CARTRIDGES = [
    (b"", "it has 0 bytes, less than a header"),
    (b"\x7fELF" + bytes(1000), "it has 1004 bytes, and its header says 32768"),
    (GAME[:16384], "it has 16384 bytes, and its header says 32768"),
    (GAME[:0x134] + b"X" + GAME[0x135:], "checksum"),
    (GAME[:0x148] + b"\x63" + GAME[0x149:], "has 99 as the code of its size, and there are 0 to 8"),
    (
        GAME[:0x149] + b"\x06" + GAME[0x14A:],
        "has 6 as the code of its memory, and there are 0 to 5",
    ),
    (GAME + b"more", "it has 32772 bytes, and its header says 32768"),
    (GAME[:0x14D] + bytes((GAME[0x14D] ^ 1,)) + GAME[0x14E:], "checksum"),
]


async def test_a_corrupt_cartridge_is_said_to_be_by_each_call_and_the_hand_stays(
    arcade: Arcade,
) -> None:
    for data, says in NO_CARTRIDGES:
        console = await arcade.console(("cartridge.gb", data), cartridge="cartridge.gb")
        for tool in ("screenshot", "save_state"):
            assert says in await console.fails(tool)
        await arcade.place.release(console.hand)
    console = await arcade.console(cartridge="in/none.gb")
    said = await console.fails("screenshot")
    assert "there is no cartridge none.gb" in said
    assert "carpal run --mount HAND:in/none.gb=FILE" in said


@pytest.mark.parametrize("where", ["none.gb", "", "fifo", "big"])
async def test_a_file_of_the_machine_that_is_no_cartridge_makes_no_hand(
    where: str, arcade: Arcade
) -> None:
    folder = arcade.game.parent
    os.mkfifo(folder / "fifo")
    with (folder / "big").open("wb") as file:
        file.truncate(9 * 1024 * 1024)
    with pytest.raises(CarpalError, match="cartridge") as caught:
        await arcade.console(cartridge=str(folder / where))
    assert caught.value.reason is Reason.PROVISION_FAILED


@pytest.mark.parametrize("where", ["../../x.gb", "a/../../x"])
async def test_a_mounted_cartridge_is_in_the_hands_folder(where: str, arcade: Arcade) -> None:
    with pytest.raises(CarpalError, match="leads out of the folder"):
        await arcade.console(cartridge=where)


async def test_a_saved_state_is_gone_on_from_as_if_nothing_had_been_since(
    console: Console,
) -> None:
    await console.does("press", buttons=["right"], frames=BOOTS + 20)
    found, path = await console.attached("save_state")
    assert found.size == path.stat().st_size < 5000
    where, screen = await console.memory(Y, 8), await console.picture()
    await console.does("hold_key", text="Down", duration=2)
    assert await console.memory(Y, 8) != where
    for _ in range(2):
        said = await console.does("load_state", state=found.digest.hex())
        assert said == f"Loaded the state. It is frame {BOOTS + 20}."
        assert await console.memory(Y, 8) == where
        assert (await console.picture()).tobytes() == screen.tobytes()
        await console.does("press", buttons=["left"], frames=5)


async def test_a_mounted_state_is_loaded_by_its_path(arcade: Arcade, console: Console) -> None:
    await console.does("press", buttons=["right"], frames=BOOTS + 20)
    where = await console.memory(Y, 8)
    _, path = await console.attached("save_state")
    other = await arcade.console(
        ("saved/a", path.read_bytes()), ("cartridge.gb", GAME), cartridge="cartridge.gb"
    )
    assert "Mounted: saved/a" in other.note
    await other.does("load_state", state="saved/a")
    assert await other.memory(Y, 8) == where


async def test_no_symlink_that_is_mounted_leads_to_a_file_of_the_machine(
    arcade: Arcade, console: Console, tmp_path: Path
) -> None:
    """As a repository may hold them: what is cloned lies in the hand's folder, symlinks and all."""
    other = await arcade.console(("a", b"a"), cartridge="in/game.gb")
    folder = one(tmp_path / "state", "a").parent
    (folder / "in").symlink_to(arcade.game.parent)
    assert "none is followed" in await other.fails("screenshot")
    (folder / "in").unlink()
    (folder / "in").mkdir()
    (folder / "in" / "game.gb").symlink_to(arcade.game)
    assert "none is followed" in await other.fails("screenshot")
    (folder / "in" / "game.gb").unlink()
    (folder / "in" / "game.gb").write_bytes(GAME)
    _, saved = await console.attached("save_state")
    (folder / "state").symlink_to(saved)
    assert "none is followed" in await other.fails("load_state", state="state")


@pytest.mark.parametrize("at", ["shelf/game.gb", "shelf.gb"])
async def test_a_cartridge_of_the_machine_is_read_through_no_symlink(
    arcade: Arcade, at: str
) -> None:
    """Its owner allows folders, and who writes in one of them does not choose another."""
    (arcade.folder / "shelf").symlink_to(arcade.game.parent)
    (arcade.folder / "shelf.gb").symlink_to(arcade.game)
    with pytest.raises(CarpalError) as raised:
        await arcade.console(cartridge=str(arcade.folder / at))
    assert raised.value.reason is Reason.PROVISION_FAILED
    assert "none is followed: name the cartridge itself" in raised.value.message


async def test_saving_a_state_writes_through_no_symlink_that_is_mounted(
    arcade: Arcade, tmp_path: Path
) -> None:
    console = await arcade.console(("a", b"a"), ("cartridge.gb", GAME), cartridge="cartridge.gb")
    folder = one(tmp_path / "state", "a").parent
    found, _ = await console.attached("save_state")
    digest = found.digest.hex()
    aim = tmp_path / "aim"
    aim.write_text("not to be overwritten")
    if not (folder / "blobs").exists():
        (folder / "blobs").mkdir()
    (folder / "blobs" / digest).unlink(missing_ok=True)
    (folder / "blobs" / digest).symlink_to(aim)
    again, _ = await console.attached("save_state")
    assert again.digest == found.digest
    assert aim.read_text() == "not to be overwritten"
    await console.does("load_state", state=digest)


def test_what_a_call_is_given_is_read_through_no_symlink(tmp_path: Path) -> None:
    folder, digest = tmp_path / "hand", "ab" * 32
    (folder / "blobs").mkdir(parents=True)
    (tmp_path / digest).write_text("the machine's")
    (folder / "blobs" / digest).symlink_to(tmp_path / digest)
    assert attachments.given(folder, digest) is None
    (folder / "blobs" / digest).unlink()
    (folder / "blobs" / digest).write_text("given")
    assert attachments.given(folder, digest) == b"given"
    (folder / "blobs" / digest).unlink()
    (folder / "blobs").rmdir()
    (folder / "blobs").symlink_to(tmp_path)
    assert attachments.given(folder, digest) is None


def one(folder: Path, name: str) -> Path:
    """The file of that name somewhere below."""
    (found,) = folder.rglob(name)
    return found


async def test_a_state_that_cannot_be_loaded_says_why_and_the_game_is_where_it_was(
    arcade: Arcade,
) -> None:
    console = await arcade.console(("cartridge.gb", GAME), cartridge="cartridge.gb")
    await console.does("press", buttons=["right"], frames=BOOTS + 20)
    _, path = await console.attached("save_state")
    good = path.read_bytes()
    state = unpacked(good)
    bad = {
        "cut": (good[:-9], "the state is damaged"),
        "changed": (good[:-9] + b"x" + good[-8:], "the state is damaged"),
        "noise": (b"noise" * 100, "it is no state that save_state made"),
        "empty": (b"", "it is no state that save_state made"),
        "large": (bytes(2 * 1024 * 1024), "more than 1048576 bytes"),
        "newer": (packed(State(state.cartridge, 1, b"\xff" * 9)), "or of another version"),
        "short": (packed(State(state.cartridge, 1, state.content[:999])), "No data"),
        "another": (
            packed(State("ab" * 32, 1, state.content)),
            "the state is of another cartridge",
        ),
    }
    other = await arcade.console(
        *(("cartridge.gb", GAME), *((name, data) for name, (data, _) in bad.items())),
        cartridge="cartridge.gb",
    )
    await other.does("press", buttons=["down"], frames=BOOTS + 20)
    before = await other.attached("screenshot"), await other.memory(Y, 8)
    for name, (_, says) in bad.items():
        assert says in await other.fails("load_state", state=name), name
    for name in ("none", "ab" * 32, "../state", "/etc/passwd", "x" * 300):
        assert await other.fails("load_state", state=name)
    assert "there is no state" in await other.fails("load_state", state="a\0b")
    unknown = await other.fails("load_state", state="ab" * 32)
    assert "name one that save_state gave" in unknown
    assert (await other.attached("screenshot"), await other.memory(Y, 8)) == before
    assert "another cartridge" not in await other.does("save_state")


async def test_nothing_is_written_beside_the_cartridge_however_the_hand_ends(
    arcade: Arcade, console: Console
) -> None:
    image = bytearray(GAME)
    image[0x147], image[0x149] = 0x03, 0x02  # a battery keeps its memory
    image[0x14D] = -(sum(image[0x134:0x14D]) + 25) & 0xFF
    arcade.game.write_bytes(bytes(image))
    other = await arcade.console()
    for each in (console, other):
        await each.does("wait", duration=1)
        await each.does("save_state")
        assert await arcade.place.release(each.hand)
    assert [path.name for path in arcade.game.parent.iterdir()] == ["game.gb"]
    assert arcade.game.read_bytes() == bytes(image)


async def test_a_cancelled_call_holds_no_button_down_and_the_game_goes_on_from_there(
    console: Console,
) -> None:
    await console.does("press", buttons=[], frames=BOOTS)
    place = console.arcade.place
    watched = place.begin(place.request(console.hand, "hold_key", text="Right", duration=100))
    keeper = place.inventory.keepers[console.hand]
    await until(lambda: watched.call_id in keeper.running, "it did not begin")
    await keeper.cancel(watched.call_id, 5.0)
    assert (await watched.result()).outcome == pb.OUTCOME_CANCELLED
    where = await console.memory(X)
    await console.does("wait", duration=1)
    assert await console.memory(X) == where


async def test_a_cartridge_that_locks_the_console_up_takes_its_hand_along_and_no_other(
    arcade: Arcade, console: Console
) -> None:
    image = bytearray(GAME)
    image[0x150] = 0xD3  # no instruction: a console stops there for good
    locked = await arcade.console(("cartridge.gb", bytes(image)), cartridge="cartridge.gb")
    await locked.does("screenshot")
    result = await locked.call("press", buttons=[], frames=600, limit=2.0 * SCALE)
    assert result.outcome == pb.OUTCOME_TIMED_OUT
    assert "the hand is lost" in result.content
    assert "frame 0" in await console.does("screenshot")
    await (await arcade.console()).does("wait", duration=1)


def test_without_pyboy_the_type_says_what_to_install() -> None:
    asks = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from hands.emulator.hand import Emulator; print(Emulator.probe())"
    )
    # -S: Python without any package that is installed.
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", asks], capture_output=True, text=True, check=True
    )
    assert ended.stdout == f"PyBoy is not installed: {extras.how('emulator')}\n"


async def test_the_goal_is_not_reached_by_waiting(console: Console) -> None:
    await console.does("wait", duration=30)
    assert await console.memory(WON) == [0]
