"""A saved state is somebody else's bytes: all that `save_state` did not write is refused as one."""

import hashlib
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from hands.api import ToolError
from hands.emulator.machine import Machine
from hands.emulator.states import SIZE_MAX, State, packed, unpacked
from tests.cartridge import cartridge

FIRST = b"carpal game state 1\n"
CONTENT = b"what there is of it" * 50
OF = "ab" * 32
GOOD = packed(State(OF, 420, CONTENT))
SEED = 7


def made(
    head: object = None, content: bytes = CONTENT, after: bytes = b"", **changed: Any
) -> bytes:
    """One as `packed` would make it, but for what is changed."""
    said = {"cartridge": OF, "frame": 420, "content": hashlib.sha256(CONTENT).hexdigest()}
    text = head if isinstance(head, bytes) else json.dumps(head or {**said, **changed}).encode()
    return FIRST + text + b"\n" + zlib.compress(content) + after


FRAMES = [
    *("Infinity", "-Infinity", "NaN", "1e400", "1.5", "420.0", "-1", "-0", "007", "1" * 40),
    *("9" * 5000, '"420"', '""', "null", "true", "[]", "[420]", '{"frame": 420}', ""),
]
OTHER: dict[str, bytes] = {
    "cut head": FIRST + b'{"cartridge": "',
    "no head": FIRST,
    "no line": FIRST + b"\n",
    "another version": GOOD.replace(b"state 1", b"state 2"),
    "nested": made(b"[" * 100_000),
    "nested a little": made(b"[" * 500 + b"]" * 500),
    "a list": made([1]),
    "a number": made(b"1"),
    "no UTF-8": made(b"\xff\xfe"),
    "a field more": made(more=1),
    "a field twice": made(b'{"frame": 1, ' + GOOD.split(b"\n")[1][1:]),
    "spaces": made(GOOD.split(b"\n")[1].replace(b": ", b":")),
    "a cartridge that is none": made(cartridge="../../x"),
    "a cartridge of a list": made(cartridge=[OF]),
    "a long cartridge": made(cartridge=OF * 2),
    "capitals": made(cartridge=OF.upper()),
    "content of nothing": made(content=b""),
    "a content that is none": made(content=b"x"),
    "something after it": made(after=b"x"),
    "twice": made(after=zlib.compress(CONTENT)),
    "a bomb": made(content=bytes(64 * 1024 * 1024)),
    "large": GOOD + bytes(SIZE_MAX),
}


def test_a_state_is_what_was_saved() -> None:
    assert unpacked(GOOD) == State(OF, 420, CONTENT)
    assert made() == GOOD
    assert unpacked(packed(State(OF, 0, CONTENT))).frame == 0


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame[:16])
def test_a_frame_that_is_no_count_is_damage(frame: str) -> None:
    head = GOOD.split(b"\n")[1].replace(b"420", frame.encode())
    with pytest.raises(ToolError, match="the state is damaged: its content is not what was saved"):
        unpacked(made(head))


@pytest.mark.parametrize("name", OTHER)
def test_what_was_not_saved_so_is_no_state(name: str) -> None:
    with pytest.raises(ToolError, match=r"it is no state|the state is damaged"):
        unpacked(OTHER[name])


def test_a_byte_that_is_changed_or_missing_is_told_but_in_the_names_of_cartridge_and_frame() -> (
    None
):
    """What is of another cartridge is refused by its name; a frame is a number that is shown."""
    free = GOOD.index(b'"content"')
    for at in range(len(GOOD)):
        for what in (GOOD[:at] + bytes((GOOD[at] ^ 1,)) + GOOD[at + 1 :], GOOD[:at]):
            try:
                state = unpacked(what)
            except ToolError:
                continue
            assert at < free
            assert state.content == CONTENT
            assert state.frame >= 0


def broken(content: bytes) -> Iterator[bytes]:
    """A console's own bytes, cut, longer and changed: what a digest that fits does not tell."""
    chance = random.Random(SEED)
    for _ in range(40):
        yield content[: chance.randrange(len(content))]
        yield content + chance.randbytes(chance.randrange(1, 99))
        changed = bytearray(content)
        for _ in range(chance.randrange(1, 20)):
            changed[chance.randrange(400)] = chance.randrange(256)
        yield bytes(changed)


@pytest.mark.timeout(120)
def test_a_state_that_is_refused_leaves_picture_memory_frame_and_what_comes_next_as_they_were() -> (
    None
):
    game = cartridge()
    saved, console = Machine(game), Machine(game)
    saved.run(500)
    content = saved.save().content
    console.run(450)
    refused = 0
    for each in broken(content):
        before, why = _all_of(console), ""
        try:
            console.load(State(console.cartridge, 3, each))
        except ToolError as error:
            why = str(error)
        if why:
            refused += 1
            assert "the state is damaged, or of another version" in why
            assert _all_of(console) == before
        else:
            assert len(each) == len(content), "bytes that are too many are taken"
            console = Machine(game)
            console.run(450)
    assert refused >= 80
    saved.stop()
    console.stop()


def test_a_state_of_a_cartridge_with_other_memory_is_refused_also_under_this_one_s_name() -> None:
    small, large = (Machine(_with_memory(code)) for code in (2, 3))
    for console, other in ((small, large), (large, small)):
        before = _all_of(console)
        with pytest.raises(ToolError, match="the state is damaged, or of another version"):
            console.load(State(console.cartridge, 3, other.save().content))
        with pytest.raises(ToolError, match="the state is of another cartridge"):
            console.load(other.save())
        assert _all_of(console) == before
    small.stop()
    large.stop()


def _all_of(console: Machine) -> tuple[object, ...]:
    memory = console.memory(0x8000, 0x8000)
    return console.picture.tobytes(), memory, console.frame, console.save()


def _with_memory(code: int) -> bytes:
    image = bytearray(cartridge())
    image[0x147], image[0x149] = 0x03, code
    image[0x14D] = -(sum(image[0x134:0x14D]) + 25) & 0xFF
    return bytes(image)
