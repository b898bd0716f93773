"""The active tab as a person sees it who watches the browser, and what they do there in control."""

from hands import controls
from hands.api import ToolError
from hands.browser.chromium import Error, Page
from hands.browser.pages import bounded
from hands.browser.tabs import Tabs

_LIMIT = 3.0
"""Seconds for the browser to draw a page, or to take a key."""
_JPEG = 60


async def view(tabs: Tabs) -> tuple[bytes, str]:
    """How it looks. Raises ToolError for a page that cannot be drawn."""
    page = _page(tabs)
    try:
        async with bounded(_LIMIT):
            data = await page.screenshot(
                type="jpeg", quality=_JPEG, scale="css", caret="initial", timeout=_LIMIT * 1000
            )
    except Error as error:
        raise ToolError("the page cannot be drawn now") from error
    return data, "image/jpeg"


async def control(tabs: Tabs, event: controls.Event) -> None:
    """Do it. Raises ToolError for a page that takes nothing."""
    page = _page(tabs)
    try:
        async with bounded(_LIMIT):
            match event:
                case controls.Key():
                    await _key(page, event)
                case controls.Pointer():
                    await page.mouse.move(event.x, event.y)
                    if event.action == "down":
                        await page.mouse.down(button=event.button)
                    elif event.action == "up":
                        await page.mouse.up(button=event.button)
                case controls.Wheel():
                    await page.mouse.move(event.x, event.y)
                    await page.mouse.wheel(event.dx, event.dy)
    except Error as error:
        # Its own words may hold what was typed.
        raise ToolError("the page did not take it") from error


async def _key(page: Page, event: controls.Key) -> None:
    # What is on no keyboard that Playwright knows is a letter all the same.
    if len(event.key) == 1 and not event.key.isascii():
        if event.down:
            await page.keyboard.insert_text(event.key)
    elif event.down:
        await page.keyboard.down(event.key)
    else:
        await page.keyboard.up(event.key)


def _page(tabs: Tabs) -> Page:
    tab = tabs.get()
    if tab is None or tab.crashed.is_set():
        raise ToolError("the active tab is gone or crashed")
    return tab.page
