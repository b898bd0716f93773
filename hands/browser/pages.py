"""What is asked of a page, within bounds: one that hangs, or a frame of it, holds up nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hands.browser import state
from hands.browser.chromium import Error, Frame, Page, PageTimeout

STEP = 10.0
"""Seconds for the browser to do one thing."""
_ALIVE = 2.0
"""Seconds for a page to answer anything: its scripts run for ever when it does not."""
_FRAMES_MAX = 500
_TOLD_MAX = 5
"""Of frames that were emptied."""


@asynccontextmanager
async def bounded(seconds: float = STEP) -> AsyncIterator[None]:
    """One step. Raises PageTimeout when it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise PageTimeout(f"it took longer than {seconds:g} s") from error


async def tree(page: Page) -> str:
    """Its accessibility snapshot, with refs. Raises Error."""
    try:
        async with bounded(STEP / 2):
            return await page.aria_snapshot(mode="ai", timeout=STEP * 500)
    except PageTimeout:
        emptied = await _without_hung_frames(page)
    async with bounded():
        text = await page.aria_snapshot(mode="ai", timeout=STEP * 1000)
    return "\n".join([text, *emptied])


async def _without_hung_frames(page: Page) -> list[str]:
    """Empty the frames that answer nothing, for one holds up the whole; says which."""
    frames = page.frames[1:][:_FRAMES_MAX]
    alive = await asyncio.gather(*(answers(frame) for frame in frames))
    hung = [frame for frame, lives in zip(frames, alive, strict=True) if not lives]
    told = await asyncio.gather(*(_emptied(frame) for frame in hung))
    lines = [line for line in told if line]
    more = len(lines) - _TOLD_MAX
    return [*lines[:_TOLD_MAX], *([f"[and {more} more of them]"] if more > 0 else [])]


async def _emptied(frame: Frame) -> str:
    """Empty one: what is said of it; nothing when it is gone."""
    where = state.one_line(frame.url or "without an address", 200)
    try:
        async with bounded(_ALIVE):
            element = await frame.frame_element()
            await element.evaluate("e => { e.src = 'about:blank' }")
    except Error:
        return ""
    return f"[a frame that did not answer was emptied: {where}]"


async def answers(frame: Frame | Page) -> bool:
    """Whether its scripts let it answer anything."""
    try:
        async with bounded(_ALIVE):
            await frame.evaluate("1")
    except Error:
        return False
    return True
