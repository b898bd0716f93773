"""The members of Claude's computer tools that hands of ours have: their inputs and their words.

Claude was taught them, so whoever has a screen and keys offers them under these names, by hints for
the methods of a class of `hands/api.py`. Bounds are no part of what Claude knows, so they are
kept here, and a refusal says them.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from hands.api import ToolError

Keys = Annotated[str, "The key or key-combination to press."]
HeldKeys = Annotated[str, "The key or key-combination to hold."]
Repeat = Annotated[int, "Number of times to repeat the key press. Default is 1."]
HoldSeconds = Annotated[int, "Duration to hold the key, in seconds."]
WaitSeconds = Annotated[int, "Duration to wait, in seconds."]
Region = Annotated[list[int], "(x0, y0, x1, y1): The region to capture."]
Coordinate = Annotated[list[int], "(x, y): The pixel of the last screenshot."]
Typed = Annotated[str, "The text to type."]
Modifiers = Annotated[str, "Keys to hold meanwhile."]
Direction = Literal["up", "down", "left", "right"]
ScrollDirection = Annotated[Direction, "The direction to scroll."]
ScrollAmount = Annotated[int, "How far to scroll."]

SECONDS_MAX = 100
REPEAT_MAX = 100
CLICKED, DOUBLE_CLICKED, DRAGGED, TYPED = "Clicked.", "Double-clicked.", "Dragged.", "Typed."
"""What Claude is told of the members of these names."""


class Point(NamedTuple):
    """A pixel of a screenshot."""

    x: int
    y: int


class Box(NamedTuple):
    """A rectangle of a screenshot, in its pixels; the right and the lower edge are outside."""

    left: int
    top: int
    right: int
    bottom: int


def seconds(duration: int) -> int:
    """A duration that may be. Raises ToolError."""
    return within("duration", duration, 1, SECONDS_MAX)


def times(repeat: int | None) -> int:
    """How often. Raises ToolError."""
    return within("repeat", 1 if repeat is None else repeat, 1, REPEAT_MAX)


def box(region: Sequence[int], width: int, height: int) -> Box:
    """What to zoom in on, of a screenshot of that size. Raises ToolError."""
    if len(region) != len(Box._fields):
        raise ToolError("region: must be four numbers, [x0, y0, x1, y1]")
    found = Box(*region)
    if not (0 <= found.left < found.right <= width and 0 <= found.top < found.bottom <= height):
        raise ToolError(
            f"region: {list(region)} is no rectangle of a screenshot of {width}x{height}: "
            "x0 < x1 and y0 < y1, in its pixels"
        )
    return found


def point(field: str, coordinate: Sequence[int], width: int, height: int) -> Point:
    """Where to act, on a screenshot of that size. Raises ToolError, which names the field."""
    if len(coordinate) != len(Point._fields):
        raise ToolError(f"{field}: must be two numbers, [x, y]")
    found = Point(*coordinate)
    if not (0 <= found.x < width and 0 <= found.y < height):
        raise ToolError(
            f"{field}: {list(coordinate)} is outside of the screenshot, which is {width}x{height}"
        )
    return found


def within(field: str, value: int, least: int, most: int) -> int:
    """A number that may be. Raises ToolError, which names the field."""
    if not least <= value <= most:
        raise ToolError(f"{field}: {value} is not {least} to {most}")
    return value


def pressed(text: str) -> str:
    """What Claude is told of `key`; the others are of the members of these names."""
    return f"Pressed {text}."


def held(text: str, duration: int) -> str:
    """Of `hold_key`."""
    return f"Held {text} for {duration}s."


def waited(duration: int) -> str:
    """Of `wait`."""
    return f"Waited {duration}s."


def scrolled(direction: Direction) -> str:
    """Of `scroll`."""
    return f"Scrolled {direction}."
