"""The pointer on a page: at a point of the viewport, or on an element."""

import contextlib
from typing import Any

from hands.browser.act import Act
from hands.browser.chromium import Error
from hands.browser.elements import element
from hands.browser.navigating import SETTLE, loaded
from hands.browser.pages import bounded
from hands.browser.pressing import LET_GO, held, modifiers

CLICK = 5.0
"""Seconds for an element to be there, seen and still."""
_NOTCH = 100
"""Pixels that a wheel's notch scrolls."""


async def click(act: Act, button: Any = "left", times: int = 1) -> None:
    """Press and let go, so many times."""
    chord, page, target = modifiers(act), act.tab.page, act.given["target"]
    async with bounded():
        if target["type"] == "ref":
            found = await element(page, target)
            async with held(page, chord):
                await found.click(button=button, click_count=times, timeout=CLICK * 1000)
        else:
            x, y = act.point(target)
            async with held(page, chord):
                await page.mouse.click(x, y, button=button, click_count=times)
    await loaded(page, SETTLE, "domcontentloaded")


async def hover(act: Act) -> None:
    """Move there."""
    page, target = act.tab.page, act.given["target"]
    async with bounded():
        if target["type"] == "ref":
            await (await element(page, target)).hover(timeout=CLICK * 1000)
        else:
            await page.mouse.move(*act.point(target))


async def drag(act: Act) -> None:
    """From one point to another."""
    begin, end = act.point(act.given["from"]), act.point(act.given["target"])
    mouse = act.tab.page.mouse
    async with bounded():
        await mouse.move(*begin)
        try:
            await mouse.down()
            await mouse.move(*end, steps=10)
        except BaseException:
            with contextlib.suppress(Error):
                async with bounded(LET_GO):
                    await mouse.up()
            raise
        await mouse.up()


async def press(act: Act) -> None:
    """The left button, at a point."""
    mouse = act.tab.page.mouse
    async with bounded():
        await mouse.move(*act.point(act.given["target"]))
        await mouse.down()


async def let_go(act: Act) -> None:
    """Of the left button, at a point."""
    mouse = act.tab.page.mouse
    async with bounded():
        await mouse.move(*act.point(act.given["target"]))
        await mouse.up()


async def move(act: Act) -> None:
    """To a point."""
    async with bounded():
        await act.tab.page.mouse.move(*act.point(act.given["target"]))


async def scroll(act: Act) -> None:
    """Turn the wheel at a point."""
    way = act.given["scroll_direction"]
    size = act.given.get("scroll_amount", 3) * _NOTCH * (-1 if way in ("up", "left") else 1)
    mouse = act.tab.page.mouse
    async with bounded():
        await mouse.move(*act.point(act.given["target"]))
        await mouse.wheel(*((0, size) if way in ("up", "down") else (size, 0)))


async def scroll_to(act: Act) -> None:
    """An element, into view."""
    async with bounded():
        found = await element(act.tab.page, act.given["target"])
        await found.scroll_into_view_if_needed(timeout=CLICK * 1000)
