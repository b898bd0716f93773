"""What a person's page shows of a hand: the newest picture, who has control, what was said."""

import asyncio
from typing import NamedTuple

from hands.inside import view_frames
from hands.pictures import header

SIDE_MAX = 10_000
"""Pixels of a picture that a browser is given, each way."""


class Picture(NamedTuple):
    """One."""

    data: bytes
    media_type: str


def picture(letter: bytes, data: bytes) -> Picture:
    """What came in a frame. ValueError for what is not the picture that it is said to be."""
    media_type = view_frames.PICTURES[letter]
    found = header.read(data)
    if found is None or found.media_type != media_type:
        raise ValueError(f"the hand shows what is no {media_type}")
    if max(found.width, found.height) > SIDE_MAX:
        raise ValueError(f"the hand shows {found.width}x{found.height} pixels")
    return Picture(data, media_type)


class Screen:
    """As it is now. Each change has a number, by which who looks waits for the next."""

    def __init__(self, hand: str) -> None:
        self.hand = hand
        self.change = 1
        self.picture: Picture | None = None
        self.number = 0
        """Of the picture."""
        self.control = False
        """The person has it."""
        self.words = ""
        """What was said last."""
        self.over = False
        self._changed = asyncio.Event()

    def show(self, new: Picture) -> None:
        """A newer picture."""
        self.picture = new
        self.number += 1
        self._tell()

    def set(self, *, control: bool | None = None, words: str | None = None) -> None:
        """What is different now."""
        self.control = self.control if control is None else control
        self.words = self.words if words is None else words
        self._tell()

    def end(self, words: str) -> None:
        """Nothing comes any more."""
        self.over = True
        self.set(control=False, words=words)

    def _tell(self) -> None:
        self.change += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, change: int, seconds: float) -> dict[str, object]:
        """How it is once there is a change after that one, or so many seconds later."""
        try:
            async with asyncio.timeout(seconds):
                while self.change <= change:
                    await self._changed.wait()
        except TimeoutError:
            pass  # then it is as it was
        return {
            "change": self.change,
            "picture": self.number,
            "hand": self.hand,
            "control": self.control,
            "words": self.words,
            "over": self.over,
        }
