"""How a tab goes to a page, and what is waited for."""

import asyncio
import contextlib
from typing import Any

from hands.api import ToolError
from hands.browser import addresses, state
from hands.browser.act import MAY, Act
from hands.browser.chromium import Error, Page, PageTimeout, Response
from hands.browser.pages import bounded
from hands.browser.tabs import Tab

COMMIT = 15.0
"""Seconds for a server to begin to answer."""
LOAD = 5.0
"""Seconds for a page to be loaded: one that is not by then is told to be loading on."""
SETTLE = 2.0
_AGAIN = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further try to go somewhere, while what was there before is ending."""


async def navigate(act: Act) -> str:
    """Go there; where that is."""
    tab = act.tab
    url, wrong = addresses.meant(act.given["url"])
    if wrong:
        raise ToolError(wrong)
    page, response, tab.stale, tab.redirected = tab.page, None, True, False
    try:
        response = await _gone_to(tab, url)
    except PageTimeout:
        await _stop(tab)
        raise
    except Error as error:
        if "crash" in error.message or page.is_closed():
            raise
        await loaded(page, SETTLE)  # the browser's own page about it
        why = addresses.why(error.message)
        if addresses.unsent(error.message) and not tab.redirected:
            raise ToolError(f"{url} was not gone to: {why}") from error
        raise ToolError(
            f"{url} gave no page: {why}. Of this call: {MAY}, for a server may have got the request"
        ) from error
    if url in ("back", "forward") and response is None and page.url == addresses.BLANK:
        raise ToolError(f"there is no page to go {url} to")
    loading = await loaded(page, LOAD)
    async with bounded():
        tab.title = await page.title()
    tab.stale = False
    title = f" — {state.one_line(tab.title, 200)}" if tab.title else ""
    status = f" (HTTP {response.status})" if response else ""
    said = f"Navigated to {state.one_line(page.url, 4096)}{title}{status}"
    if response is not None and addresses.by_forwarder(response.url, response.headers):
        said += await _forwarders(page)
    return said + (f"\n[it still loads after {LOAD:g} s]" if loading else "")


async def loaded(page: Page, seconds: float, state: Any = "load") -> bool:
    """Wait for that; whether it still loads."""
    try:
        async with bounded(seconds + 1):
            await page.wait_for_load_state(state, timeout=seconds * 1000)
    except PageTimeout:
        return True
    return False


async def _gone_to(tab: Tab, url: str) -> Response | None:
    page, most = tab.page, COMMIT * 1000
    async with bounded(COMMIT + 1):
        if url == "back":
            return await page.go_back(wait_until="commit", timeout=most)
        if url == "forward":
            return await page.go_forward(wait_until="commit", timeout=most)
        if url == "reload":
            return await page.reload(wait_until="commit", timeout=most)
        for pause in _AGAIN:
            try:
                return await page.goto(url, wait_until="commit", timeout=most)
            except Error as error:
                # What was before may end just now, as the browser's own page about a failure.
                if "interrupted by another navigation" not in error.message:
                    raise
                # It goes on all the same, and would end the next try in its turn.
                await _stop(tab)
                await loaded(page, SETTLE)
                await asyncio.sleep(pause)
        return await page.goto(url, wait_until="commit", timeout=most)


async def _stop(tab: Tab) -> None:
    """End what is on its way: while a server is waited for, the page may answer nothing."""
    with contextlib.suppress(Error):
        async with bounded(1):
            if tab.session:
                await tab.session.send("Page.stopLoading")


async def _forwarders(page: Page) -> str:
    """What the forwarder says on its page."""
    async with bounded():
        text: str = await page.evaluate("document.body ? document.body.innerText : ''")
    return f"\n{state.one_line(text.strip(), 500)}"
