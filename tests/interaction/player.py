"""A model's stand-in that plays the game of `tests/cartridge.py` by what it sees. Not a model.

It looks at the newest screenshot in the conversation, finds the block and the goal, and presses
what leads from one to the other. A person's last words may be `save`, `play`, or `load and play`:
the state is the one that was saved last in the conversation, wherever that was.
"""

import base64
import io
import re
from typing import Any, NamedTuple

from PIL import Image

from hands.emulator.screen import NATIVE, SIZE
from tests.cartridge import Y

Json = dict[str, Any]
SIDE = 8
"""Pixels of the console, of the block and of the goal."""


def reply(body: Json) -> list[Json]:
    """The blocks of the next reply to a request."""
    messages = body["messages"]
    words = next(filter(None, map(_words, reversed(messages))))
    since = max(number for number, each in enumerate(messages) if _words(each))
    done = [_use(each) for each in messages[since + 1 :] if each["role"] == "assistant"]
    plans: dict[str, list[tuple[str, Json]]] = {
        "save": [("wait", {"duration": 7}), ("save_state", {})],
        "play": [],
        "load and play": [("load_state", {"state": _saved(messages)})],
    }
    plan = plans[words]
    if len(done) < len(plan):
        return _call(len(messages), *plan[len(done)])
    if words == "save":
        return [{"type": "text", "text": "Saved."}]
    return _play(messages, done[len(plan) :])


def _play(messages: list[Json], done: list[tuple[str, Json]]) -> list[Json]:
    if done and done[-1][0] == "read_memory":
        return [{"type": "text", "text": "It is won."}]
    if not done or done[-1][0] == "press":
        return _call(len(messages), "screenshot", {})
    found = seen(_newest_picture(messages))
    if found.won:
        return _call(len(messages), "read_memory", {"address": Y, "length": 4})
    if found.block and found.goal:
        for way, at, there in zip(("right", "down"), found.block, found.goal, strict=True):
            if at < there:
                return _call(len(messages), "press", {"buttons": [way], "frames": there - at})
    return _call(len(messages), "press", {"buttons": [], "frames": 2})


class Seen(NamedTuple):
    """What a screenshot shows; places are corners, in pixels of the console."""

    won: bool
    """The background is dark."""
    block: tuple[int, int] | None = None
    goal: tuple[int, int] | None = None


def seen(png: bytes) -> Seen:
    """What is to be seen on a picture."""
    with Image.open(io.BytesIO(png)) as picture:
        assert picture.size == SIZE
        small = picture.convert("L").resize(NATIVE, Image.Resampling.NEAREST).tobytes()
    width, height = NATIVE
    dark = [bytes(each < 128 for each in small[row * width :][:width]) for row in range(height)]
    squares = {
        (x, y): b"".join(dark[y + row][x : x + SIDE] for row in range(SIDE))
        for y in range(height - SIDE + 1)
        for x in range(width - SIDE + 1)
    }
    full = bytes([1]) * SIDE**2
    block = next((at for at, each in squares.items() if each == full), None)
    on_grid = (at for at in squares if not at[0] % SIDE and not at[1] % SIDE)
    goal = next((at for at in on_grid if _chequered(squares[at])), None)
    return Seen(bool(dark[-1][-1]), block, goal)


def _chequered(square: bytes) -> bool:
    return all(square[at] != square[at + 1] for at in range(0, SIDE**2, 2))


def _words(message: Json) -> str:
    if message["role"] != "user" or isinstance(message["content"], str):
        return str(message["content"]) if message["role"] == "user" else ""
    texts = [each["text"] for each in message["content"] if each["type"] == "text"]
    return next((text for text in texts if text in ("save", "play", "load and play")), "")


def _use(message: Json) -> tuple[str, Json]:
    found = [each for each in message["content"] if each["type"] == "tool_use"]
    return (found[0]["name"], found[0]["input"]) if found else ("", {})


def _blocks(messages: list[Json]) -> list[Json]:
    results = [
        each["content"]
        for message in messages
        if isinstance(message["content"], list)
        for each in message["content"]
        if each["type"] == "tool_result"
    ]
    return [block for content in results if isinstance(content, list) for block in content]


def _newest_picture(messages: list[Json]) -> bytes:
    pictures = [each for each in _blocks(messages) if each["type"] == "image"]
    return base64.b64decode(pictures[-1]["source"]["data"])


def _saved(messages: list[Json]) -> str:
    texts = [each["text"] for each in _blocks(messages) if each["type"] == "text"]
    return "".join(re.findall(r"Saved the state at frame \d+: ([0-9a-f]{64})", "".join(texts))[-1:])


def _call(number: int, name: str, given: Json) -> list[Json]:
    return [{"type": "tool_use", "id": f"toolu_{number:06}", "name": name, "input": given}]
