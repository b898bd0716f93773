"""One browser: what its calls do, and what becomes of one whose page hangs, crashes or takes all.

A page that does not answer is closed, and the call says so; the browser goes on. When the browser
itself ends, the hand is lost: its tabs are gone, and whoever needs one asks for another hand.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hands import controls
from hands.api import Context, HandLost, ToolError
from hands.browser import person, state
from hands.browser.act import Act
from hands.browser.acting import DO
from hands.browser.chromium import Chromium, Error, PageTimeout
from hands.browser.downloads import Downloads
from hands.browser.guard import Guard
from hands.browser.members import (
    ACTING,
    MEMBERS,
    OFF,
    TAB_MEMBERS,
    VIEWPORT,
    Member,
    acknowledged,
)
from hands.browser.pages import answers, bounded
from hands.browser.room import Room
from hands.browser.tabs import Tab, Tabs
from hands.plugins.hosted import Hosted

PROXY = "http://127.0.0.1:3128"
"""The relay's, which every hand in a sandbox has."""

_FLOODED = (
    "was ended: pages sent the browser more than it could take in, as messages, addresses or "
    "frames without end, and this was the busiest"
)
_ENDED = "the browser ended: its tabs are gone"


class Browser(Hosted):
    """One hand."""

    async def make(self, config: Mapping[str, Any], context: Context) -> str:
        """Start it."""
        print("starting the browser", flush=True)  # noqa: T201 - as progress
        self._viewport = {**VIEWPORT, **config.get("viewport", {})}
        self._allowed = frozenset(config.get("allow", ()))
        self._chromium = Chromium()
        home = Path(os.environ["HOME"])
        coming = Path(os.environ["TMPDIR"]) / "downloads"
        coming.mkdir()
        cancel = self._chromium.cancel_download if "downloads" in self._allowed else None
        self._downloads = Downloads(context.folder, coming, cancel)
        self._room = Room(home)
        opened = await self._chromium.start(home / "profile", coming, self._viewport, PROXY)
        self._tabs = Tabs(
            opened,
            accept=config.get("dialogs") == "accept",
            watch_console="read_console" in self._allowed,
            watch_network="read_network" in self._allowed,
            download=self._downloads.begun,
        )
        self._calls = 0
        self._news: list[str] = []
        """Lines for the next answer that has room for any."""
        self._guard = Guard(self._chromium.ask)
        self._tabs.ended = self._guard.ended
        self._tabs.close_target = self._chromium.close_target
        self._watching = [
            asyncio.create_task(self._watch()),
            asyncio.create_task(self._guard.watch()),
        ]
        wide, high = self._viewport["width"], self._viewport["height"]
        off = sorted(OFF - self._allowed)
        return (
            f"A browser with one empty tab, {wide}x{high}; http and https only. "
            "Files to upload are in the workspace. "
            + (f"Off here: {', '.join(off)}." if off else "")
        ).strip()

    async def call(self, name: str, given: Mapping[str, Any], context: Context) -> str:
        """Run a member. The browser may end meanwhile, and the call with it."""
        self._calls += 1
        work = asyncio.create_task(self._call(MEMBERS[name], given, context))
        gone = asyncio.create_task(self._chromium.gone.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise HandLost(_ENDED)
            return work.result()
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            if not work.cancelled() and isinstance(error := work.exception(), ToolError):
                raise error from None  # how far it came
            raise
        finally:
            self._calls -= 1
            for each in (work, gone):
                each.cancel()
            await asyncio.wait({work, gone})

    async def view(self) -> tuple[bytes, str]:
        """The active tab, for a person."""
        return await person.view(self._tabs)

    async def control(self, event: controls.Event) -> None:
        """What a person does who has control of it."""
        await person.control(self._tabs, event)

    async def release(self) -> None:
        """End it."""
        if hasattr(self, "_watching"):
            for each in self._watching:
                each.cancel()
            await asyncio.wait(self._watching)
        if hasattr(self, "_chromium"):
            await self._chromium.stop()

    async def _watch(self) -> None:
        """A browser that ends between calls is a lost hand all the same."""
        await self._chromium.gone.wait()
        if not self._calls:
            self.lose(_ENDED)

    async def _call(self, member: Member, given: Mapping[str, Any], context: Context) -> str:
        if member.name in OFF - self._allowed:
            raise ToolError(f"{member.name} is off in this hand: `allow` in its config turns it on")
        try:
            if not self._tabs.open:  # the last page closed itself
                await self._open_one()
            tab_id = given.get("tab_id", "")
            tab = self._tabs.get(tab_id)
            if tab is None:
                raise ToolError(f"there is no tab {tab_id[:40]!r}: list_tabs shows them")
            text = await self._act(member, tab, given, context)
        except ToolError as error:
            self._tabs.unreached = ""  # the error itself says it
            news = [*self._tabs.notices(), *self._news, *await self._made_room()]
            self._news.clear()
            raise ToolError("\n".join([str(error), *news])) from error
        changes, about = await self._downloads.settled(context)
        self._tabs.changes += changes
        self._news += [*about, *await self._made_room()]
        lines = [text] if text else []
        if member.name not in TAB_MEMBERS:  # whose whole answer is how the tabs are
            lines += [*self._tabs.notices(), *self._news]
            self._news.clear()
        # What a page says of itself in such words is never the last that is said.
        always = member.name in TAB_MEMBERS or state.BEGINS in "\n".join(lines)
        if line := await self._tabs.told(always, opened=member.name == "new_tab"):
            lines.append(line)
        return "\n".join(lines)

    async def _made_room(self) -> list[str]:
        tabs = [tab for tab in self._tabs.open.values() if tab.session and not tab.crashed.is_set()]
        tabs.sort(key=lambda tab: tab.tab_id != self._tabs.active)
        sessions = [tab.session for tab in tabs if tab.session]
        return await self._room.made(tuple(self._tabs.sites), sessions)

    async def _open_one(self) -> None:
        try:
            async with bounded():
                await self._tabs.new()
        except Error as error:
            raise ToolError(
                f"no tab is open, and none could be opened: {_reason(error)}"
            ) from error

    async def _act(
        self, member: Member, tab: Tab, given: Mapping[str, Any], context: Context
    ) -> str:
        """What it answers. Raises ToolError, for whatever a page did."""
        if tab.crashed.is_set():
            raise ToolError(await self._over(tab, "crashed"))
        act = Act(tab, given, self._viewport, context, went=tab.went, showed=tab.showed)
        try:
            if member.name in TAB_MEMBERS:
                await self._of_tabs(member.name, tab)
                return ""
            said = await DO[member.name](act)
            return said if said is not None else acknowledged(member, given)
        except PageTimeout as error:
            raise ToolError(_also(member, act, await self._slow(member, act, error))) from error
        except Error as error:
            raise ToolError(_also(member, act, await self._failed(tab, error))) from error
        except asyncio.CancelledError:
            if member.name in ACTING:
                raise ToolError(act.may) from None
            raise

    async def _of_tabs(self, name: str, tab: Tab) -> None:
        if name == "new_tab":
            if len(self._tabs.open) >= state.TABS_MAX:
                raise ToolError(f"there are {state.TABS_MAX} tabs: close some")
            await self._tabs.new()
        elif name == "switch_tab":
            self._tabs.active = tab.tab_id
            async with bounded():
                await tab.page.bring_to_front()
        elif name == "close_tab" and not await self._closed(tab):
            raise HandLost("a page hangs, and its tab cannot be closed")

    async def _closed(self, tab: Tab) -> bool:
        """Close it, also when the way to it is full of what a page sends; whether it is."""
        if await self._tabs.close(tab):
            return True
        self._guard.end_busiest()
        return await self._guard.settled() and await self._tabs.close(tab)

    async def _slow(self, member: Member, act: Act, error: Error) -> str:
        """What is said of a step that took too long; a page that answers nothing is closed."""
        tab = act.tab
        took_in = await self._guard.settled()
        if tab.crashed.is_set():
            return await self._over(tab, "crashed")
        if not took_in:
            return f"the browser is busy with what its pages send it: {_reason(error)}; try again"
        if not await answers(tab.page):
            return await self._over(tab, act.silent)
        if member.name == "navigate":
            return "the server did not answer in time; the tab is where it was"
        if member.name == "screenshot":
            return "the page could not be drawn in time; try again, or read_page"
        return f"{_reason(error)}; read_page or a screenshot shows how the page is now"

    async def _failed(self, tab: Tab, error: Error) -> str:
        text = error.message
        if tab.crashed.is_set() or "crashed" in text:
            return await self._over(tab, "crashed")
        if tab.page.is_closed():
            return f"tab {tab.tab_id} is closed: list_tabs shows those that are open"
        return _reason(error)

    async def _over(self, tab: Tab, what: str) -> str:
        """Close a tab that is of no more use. Raises HandLost when even that fails."""
        url = state.one_line(tab.page.url, 200)
        if what == "crashed":
            what = _FLOODED if tab.flooded else "crashed; it may have needed too much memory"
        if not await self._closed(tab):
            raise HandLost(f"the page {url} {what}, and its tab cannot be closed")
        return (
            f"the page {url} {what}. Its tab {tab.tab_id} was closed; the others go on, "
            f"and {self._tabs.active} is active"
        )


def _also(member: Member, act: Act, why: str) -> str:
    """Why a member failed, and of one that changes something how far it may have come."""
    return f"{why}. Of this call: {act.may}" if member.name in ACTING else why


def _reason(error: Error) -> str:
    """What the browser says, for the model: its first line, and what it waited for last."""
    first, _, rest = error.message.partition("\nCall log:")
    waited = [line.strip(" -\t") for line in rest.splitlines() if line.strip(" -\t")]
    last = f" ({state.one_line(waited[-1], 200)})" if waited else ""
    return f"it could not be done: {state.one_line(first.partition(': ')[2] or first, 300)}{last}"
