"""Chromium by Playwright, which has its one door here: how it is started, and that it ended.

Its own sandbox is on: what a page runs is kept from the browser, as the hand is from the machine.
What it goes to is kept to http and https by a policy of the machine's, which it reads at
`/etc/chromium/policies` and cannot write.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from playwright.async_api import (
    BrowserContext,
    CDPSession,
    ConsoleMessage,
    Dialog,
    Download,
    Error,
    Frame,
    Locator,
    Page,
    Playwright,
    Request,
    Response,
    async_playwright,
)
from playwright.async_api import TimeoutError as PageTimeout

from hands.inside import tree

PROGRAM = "/usr/lib/chromium/chromium"
"""Debian's, without the script around it, which reads what is this machine's own."""
START_LIMIT = 60.0
_END_LIMIT = 2.0
_CANCEL_LIMIT = 2.0
_ARGUMENTS = (
    "--disable-gpu",  # there is none inside; to look for one takes a tenth of the start
    "--disable-auto-reload",  # of a page that failed: it would cut off where one goes next
)
_NOT_THESE = (
    # What a page may do without end, as to change its address, is slowed by the browser itself.
    "--disable-ipc-flooding-protection",
)
_OOM = Path("/proc/self/oom_score_adj")
__all__ = [
    "BrowserContext",
    "CDPSession",
    "Chromium",
    "ConsoleMessage",
    "Dialog",
    "Download",
    "Error",
    "Frame",
    "Locator",
    "Page",
    "PageTimeout",
    "Request",
    "Response",
]


def _last_of_all() -> None:
    """When memory is short a page goes first, and not what all pages need: as Chromium has it."""
    with contextlib.suppress(OSError):  # then the kernel chooses by size
        _OOM.write_text("0")


class Chromium:
    """One browser, with one profile."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        """It ended, and did not have to."""
        self._playwright: Playwright | None = None
        self._context: BrowserContext | None = None
        self._session: CDPSession | None = None
        """What the browser as a whole is told."""
        self._ending = False

    async def start(
        self,
        profile: Path,
        downloads: Path,
        viewport: Mapping[str, int],
        proxy: str,
    ) -> BrowserContext:
        """Start it; one empty page is open then. Raises Error, or what asyncio.timeout does.

        `downloads` is a folder to which files come, each under its id.
        """
        async with asyncio.timeout(START_LIMIT):
            _last_of_all()
            self._playwright = await async_playwright().start()
            self._follow_driver()
            self._context = await self._playwright.chromium.launch_persistent_context(
                profile,
                executable_path=PROGRAM,
                headless=True,
                chromium_sandbox=True,
                args=[
                    *_ARGUMENTS,
                    f"--proxy-server={proxy}",
                    "--proxy-bypass-list=<-loopback>",  # what is loopback here is nobody's
                ],
                ignore_default_args=list(_NOT_THESE),
                viewport={"width": viewport["width"], "height": viewport["height"]},
                accept_downloads=True,
                downloads_path=downloads,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=START_LIMIT * 1000,
            )
            if self._context.browser:
                self._session = await self._context.browser.new_browser_cdp_session()
        self._context.on("close", lambda _: self._closed())
        return self._context

    async def ask(self) -> None:
        """Anything that needs no page. Raises Error."""
        if self._session:
            await self._session.send("Browser.getVersion")

    async def close_target(self, name: str) -> None:
        """Close the page of that id. Raises Error."""
        if self._session:
            await self._session.send("Target.closeTarget", {"targetId": name})

    async def cancel_download(self, name: str) -> None:
        """Stop the one of that id; nothing where it is over."""
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(_CANCEL_LIMIT):
                if self._session:
                    await self._session.send("Browser.cancelDownload", {"guid": name})

    async def stop(self) -> None:
        """End it; what does not end is killed with the hand."""
        self._ending = True
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(_END_LIMIT):
                if self._context:
                    await self._context.close()
                if self._playwright:
                    await self._playwright.stop()

    def _follow_driver(self) -> None:
        """When Playwright's driver ends, nothing says so: the next question has no answer."""
        loop = asyncio.get_running_loop()
        for each in tree.everyone().values():
            if each.parent == os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    ended = os.pidfd_open(each.pid)
                    loop.add_reader(ended, self._driver_ended, ended)

    def _driver_ended(self, handle: int) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        self._closed()

    def _closed(self) -> None:
        if not self._ending:
            self.gone.set()
