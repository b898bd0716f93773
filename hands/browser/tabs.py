"""The tabs of one browser: who they are, what became of them, and what pages do unasked."""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hands.browser import addresses, state
from hands.browser.chromium import (
    BrowserContext,
    CDPSession,
    ConsoleMessage,
    Dialog,
    Download,
    Error,
    Frame,
    Page,
    Request,
    Response,
)

CLOSE_LIMIT = 5.0
"""Seconds for a tab to close: one whose page hangs takes half of one."""
_INSIST = 1.0
_TITLE_LIMIT = 1.0
_LINES = 500
"""Lines of a console, and requests, that are kept of each tab."""
_LINE_MAX = 500
_SITES = 100
"""Of those whose pages were here the last so many are known."""
_KEPT_MAX = _LINE_MAX + 1
"""Characters of what a page says that are kept: one more than are told, so that a cut shows."""
_NOT_ALLOWED = (
    "Not allowed to load local resource: ",
    "Not allowed to navigate top frame to data URL: ",
)

Json = dict[str, Any]


@dataclass(eq=False)
class Tab:
    """One of them."""

    tab_id: str
    page: Page
    title: str = ""
    stale: bool = True
    """Its title may have changed."""
    crashed: asyncio.Event = field(default_factory=asyncio.Event)
    flooded: bool = False
    """It crashed because it was ended, for what pages sent."""
    session: CDPSession | None = None
    """What the browser itself is told of it, past its page."""
    console: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    target: str = ""
    """The browser's own id of its page."""
    network: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    redirected: bool = False
    """A server sent it elsewhere, where it failed, since it was told to go somewhere."""
    went: int = 0
    """How often it went somewhere, or to another place of the same page."""
    showed: int = 0
    """How many dialogs it showed."""


class Tabs:
    """All of them."""

    def __init__(
        self,
        context: BrowserContext,
        *,
        accept: bool,
        watch_console: bool,
        watch_network: bool,
        download: Callable[[Download], None],
    ) -> None:
        """`accept` is the answer to dialogs; `watch_…`: what is to be listed, which may be much."""
        self._context = context
        self._accept = accept
        self._watch_console = watch_console
        self._watch_network = watch_network
        self._download = download
        self._numbers = itertools.count(1)
        self.open: dict[str, Tab] = {}
        self.active = ""
        self.changes: list[Json] = []
        """Tabs opened and downloads since the last time that was told."""
        self.dialogs = state.Dialogs()
        self.too_many = 0
        """Tabs that were closed because there were so many."""
        self.refused: list[str] = []
        """Where pages went that may not be gone to."""
        self.unreached = ""
        """Where a page went last that the forwarder did not lead to."""
        self.sites: dict[str, None] = {}
        """Origins whose pages were here, also in frames, the last at the end."""
        self.ended: Callable[[], bool] = lambda: False
        """Whether a page that crashes now was ended."""
        self.close_target: Callable[[str], Awaitable[None]] = _nothing
        """Closes a page by the browser's own id of it."""
        self._asked: set[asyncio.Task[None]] = set()
        self._told: tuple[Any, ...] = ()
        context.on("page", self._new_page)
        # Of the context, for it is over before a page that was opened with it is told of.
        context.on("requestfailed", self._led_nowhere)
        for page in context.pages:
            self._opened(page)
        self.changes.clear()

    def get(self, tab_id: str = "") -> Tab | None:
        """The tab of that id, or the active one."""
        return self.open.get(tab_id or self.active)

    async def new(self) -> Tab:
        """Open one, which is the active one then. Raises Error."""
        page = await self._context.new_page()
        tab = self._opened(page)
        self.active = tab.tab_id
        return tab

    async def close(self, tab: Tab) -> bool:
        """Close one; whether it did. There is always another then."""
        closed = False
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT):
                if self.open.keys() <= {tab.tab_id}:
                    await self.new()
                await self._closed(tab)
                closed = True
        self._gone(tab)
        return closed

    async def _closed(self, tab: Tab) -> None:
        closing = asyncio.create_task(tab.page.close(run_before_unload=False))
        try:
            while not (await asyncio.wait({closing}, timeout=_INSIST))[0]:
                # One that went elsewhere just then did not hear it, and is not asked again.
                if tab.target:
                    await self.close_target(tab.target)
            closing.result()
        finally:
            closing.cancel()
            await asyncio.wait({closing})

    async def entries(self) -> list[Json]:
        """As `browser_state` lists them."""
        stale = [tab for tab in self.open.values() if tab.stale]
        await asyncio.gather(*(self._title(tab) for tab in stale))
        return [
            {
                "tab_id": tab.tab_id,
                "title": tab.title,
                "url": "" if tab.page.url == addresses.BLANK else tab.page.url,
                **({"active": True} if tab.tab_id == self.active else {}),
            }
            for tab in self.open.values()
        ]

    async def told(self, always: bool, *, opened: bool = False) -> str:
        """The line that says how the tabs are; empty when nothing of that is new.

        `opened`: of those that were opened it tells only the active one, and the others later.
        """
        now = (self.active, *((tab.tab_id, tab.page.url) for tab in self.open.values()))
        if not (always or self.changes or now != self._told):
            return ""
        self._told = now
        for tab in self.open.values():
            tab.stale = tab.stale or always
        entries = await self.entries()
        changes = [
            each
            for each in self.changes
            if each["type"] != "tab_opened" or each["tab_id"] in self.open
        ]
        later = [
            each for each in changes if opened and each.get("tab_id", self.active) != self.active
        ]
        self.changes[:] = later
        return state.line(entries, [each for each in changes if each not in later])

    def notices(self) -> list[str]:
        """What pages did unasked since it was last told: dialogs, and where they may not go."""
        lines = self.dialogs.told()
        if self.too_many:
            many = (
                "A tab that a page opened was"
                if self.too_many == 1
                else (f"{self.too_many} tabs that pages opened were")
            )
            lines.append(f"{many} closed: there are {state.TABS_MAX} tabs already.")
        self.too_many = 0
        if self.refused:
            where = state.one_line(self.refused[0], 200)
            many = "or more " if len(self.refused) == _LINES else ""
            more = f" (and {len(self.refused) - 1} {many}others)" if len(self.refused) > 1 else ""
            lines.append(f"A navigation to {where}{more} was refused: {addresses.ONLY}.")
        self.refused.clear()
        if self.unreached:
            where = state.one_line(self.unreached, 200)
            lines.append(f"A navigation to {where} came to nothing: {addresses.UNREACHED}.")
        self.unreached = ""
        return lines

    def _new_page(self, page: Page) -> None:
        self._opened(page)

    def _opened(self, page: Page) -> Tab:
        for tab in self.open.values():
            if tab.page is page:
                return tab
        tab = Tab(f"t{next(self._numbers)}", page)
        self.open[tab.tab_id] = tab
        self.active = self.active or tab.tab_id
        self.changes.append({"type": "tab_opened", "tab_id": tab.tab_id})
        page.on("close", lambda _: self._gone(tab))
        page.on("crash", lambda _: self._crashed(tab))
        if self._watch_console:
            page.on("console", lambda message: self._said(tab, message))
            page.on(
                "pageerror",
                lambda error: self._line(tab.console, f"[error] {str(error)[:_KEPT_MAX]}"),
            )
        page.on("dialog", lambda dialog: self._dialog(tab, dialog))
        page.on("download", self._download)
        page.on("framenavigated", lambda frame: self._navigated(tab, frame))
        page.on("requestfailed", lambda request: self._failed(tab, request))
        self._task(self._follow(tab))
        if self._watch_network:
            page.on("response", lambda response: self._answered(tab, response))
        if len(self.open) > state.TABS_MAX:
            self._task(self._too_many(tab))
        return tab

    def _crashed(self, tab: Tab) -> None:
        tab.flooded = self.ended()
        tab.crashed.set()

    def _gone(self, tab: Tab) -> None:
        self.open.pop(tab.tab_id, None)
        # A page may open and close tabs without end.
        opened = {"type": "tab_opened", "tab_id": tab.tab_id}
        self.changes[:] = [each for each in self.changes if each != opened]
        if self.active == tab.tab_id:
            self.active = next(reversed(self.open), "")

    def _said(self, tab: Tab, message: ConsoleMessage) -> None:
        text = message.text[: 2 * _KEPT_MAX]  # the URL of one has as much room as elsewhere
        self._line(tab.console, f"[{message.type}] {text}")

    async def _follow(self, tab: Tab) -> None:
        """Hear where it wants to go: of what is refused the page itself says nothing."""
        with contextlib.suppress(Error):
            tab.session = session = await self._context.new_cdp_session(tab.page)
            for event in ("Page.frameRequestedNavigation", "Page.windowOpen"):
                session.on(event, lambda told: self._wanted(str(told.get("url", ""))))
            session.on("Log.entryAdded", self._logged)
            await session.send("Page.enable")
            await session.send("Log.enable")
            info = (await session.send("Target.getTargetInfo"))["targetInfo"]
            tab.target = str(info["targetId"])

    def _logged(self, told: Json) -> None:
        """What the browser says on a page's console, and not the page."""
        text = str(told.get("entry", {}).get("text", ""))[: 2 * _KEPT_MAX]
        if text.startswith(_NOT_ALLOWED):
            self._refuse(text.partition(": ")[2])

    def _wanted(self, url: str) -> None:
        if not addresses.allowed(url):
            self._refuse(url)

    def _navigated(self, tab: Tab, frame: Frame) -> None:
        if site := addresses.origin(frame.url):
            self.sites.pop(site, None)
            self.sites[site] = None
            if len(self.sites) > _SITES:
                del self.sites[next(iter(self.sites))]
        if frame.parent_frame is None:
            tab.stale = True
            tab.went += 1

    def _failed(self, tab: Tab, request: Request) -> None:
        failure = str(request.failure or "")
        if request.redirected_from is not None and request.is_navigation_request():
            tab.redirected = True
        url = request.url[:_KEPT_MAX]
        if addresses.refused(failure):
            redirects = addresses.allowed(request.url)
            self._refuse(f"where {url} leads" if redirects else url)
        if self._watch_network:
            self._line(tab.network, f"{request.method} {url} failed: {failure}")

    def _led_nowhere(self, request: Request) -> None:
        if addresses.unreached(str(request.failure or "")) and request.is_navigation_request():
            self.unreached = request.url[:_KEPT_MAX]

    def _refuse(self, url: str) -> None:
        url = url[:_KEPT_MAX]
        if len(self.refused) < _LINES and url not in self.refused:
            self.refused.append(url)

    def _answered(self, tab: Tab, response: Response) -> None:
        request = response.request
        kind = response.headers.get("content-type", "").partition(";")[0]
        took = max(0.0, request.timing["responseStart"])
        url = request.url[:_KEPT_MAX]
        line = f"{request.method} {url} {response.status} {kind} {took:.0f} ms"
        self._line(tab.network, line)

    def _dialog(self, tab: Tab, dialog: Dialog) -> None:
        tab.showed += 1
        self._task(self._answer(dialog))

    async def _answer(self, dialog: Dialog) -> None:
        # One that asks whether to leave the page would keep the browser from all that it is told.
        accept = self._accept or dialog.type == "beforeunload"
        self.dialogs.add(dialog.type, dialog.message, "accepted" if accept else "dismissed")
        with contextlib.suppress(Error):  # its page is gone
            await (dialog.accept() if accept else dialog.dismiss())

    async def _too_many(self, tab: Tab) -> None:
        if await self.close(tab):
            self.too_many += 1

    async def _title(self, tab: Tab) -> None:
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(_TITLE_LIMIT):
                tab.title = (await tab.page.title())[:_KEPT_MAX]
                tab.stale = False

    def _task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    @staticmethod
    def _line(lines: deque[str], text: str) -> None:
        lines.append(state.one_line(text, _LINE_MAX))


async def _nothing(_: str) -> None:
    """Until it is known how."""
