"""Keys on a page: typed, pressed, held. What was down is up again however it ends.

Text goes in pieces, and presses one by one, so that a page which takes too long gets no more of it
after its call has ended, and the call can say how much it got.
"""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hands.api import ToolError
from hands.browser import keys
from hands.browser.act import Act
from hands.browser.chromium import Error, Page
from hands.browser.navigating import SETTLE, loaded
from hands.browser.pages import STEP, bounded

LET_GO = 0.5
"""Seconds for what is down to be let go, also when a call must end at once."""
TYPED_MAX = 2000
"""Characters that are typed key by key: more is put in whole."""
PIECE = 20
"""Characters that are typed at once."""


async def type_text(act: Act) -> None:
    """Type where the focus is."""
    text, keyboard = act.given["text"], act.tab.page.keyboard
    async with bounded(STEP * 2):
        if len(text) > TYPED_MAX:
            act.so_far = f"none, some or all of the {len(text)} characters may have been typed"
            await keyboard.insert_text(text)
        else:
            for at in range(0, len(text), PIECE):
                piece = text[at : at + PIECE]
                act.so_far = (
                    f"{at} of the {len(text)} characters were typed, and up to {len(piece)} more "
                    "may have been"
                )
                await keyboard.type(piece)
    act.so_far = "all of it was typed"
    await loaded(act.tab.page, SETTLE, "domcontentloaded")


async def key(act: Act) -> None:
    """Press keys and chords."""
    presses = _presses(act.given["text"]) * act.given.get("repeat", 1)
    async with bounded(STEP * 2):
        for number, chord in enumerate(presses):
            act.so_far = f"{number} of {len(presses)} presses were done, and one more may have been"
            await act.tab.page.keyboard.press("+".join(chord))
    act.so_far = "all of the presses were done"
    await loaded(act.tab.page, SETTLE, "domcontentloaded")


async def hold_key(act: Act) -> None:
    """Hold a key or chord."""
    (chord, *more) = _presses(act.given["text"])
    if more:
        raise ToolError("hold_key holds one key or chord, without spaces")
    async with held(act.tab.page, chord):
        await act.pause(act.given["duration"])


def modifiers(act: Act) -> list[str]:
    """Those that are given. Raises ToolError."""
    try:
        return keys.modifiers(act.given["modifiers"]) if act.given.get("modifiers") else []
    except ValueError as error:
        raise ToolError(f"modifiers: {error}") from error


@asynccontextmanager
async def held(page: Page, chord: list[str]) -> AsyncIterator[None]:
    """Keys that are down throughout the block."""
    down: list[str] = []
    try:
        for each in chord:
            down.append(each)
            async with bounded():
                await page.keyboard.down(each)
        yield
    finally:
        with contextlib.suppress(Error):
            async with bounded(LET_GO):
                for each in reversed(down):
                    await page.keyboard.up(each)


def _presses(text: str) -> list[list[str]]:
    try:
        return keys.presses(text)
    except ValueError as error:
        raise ToolError(f"text: {error}") from error
