"""What the members that act on one page do. Each step is bounded."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hands.api import ToolError
from hands.browser import addresses, keys, pages, snapshot, state
from hands.browser.chromium import Error, Locator, Page, PageTimeout, Response
from hands.browser.pages import STEP, bounded
from hands.browser.tabs import Tab

CLICK = 5.0
"""Seconds for an element to be there, seen and still."""
COMMIT = 15.0
"""Seconds for a server to begin to answer."""
LOAD = 5.0
"""Seconds for a page to be loaded: one that is not by then is told to be loading on."""
SETTLE = 2.0
TEXT_MAX = 50_000
_NOTCH = 100
"""Pixels that a wheel's notch scrolls."""
_TYPED_MAX = 2000
"""Characters that are typed key by key: more is put in whole."""

Given = Mapping[str, Any]

_TEXT = """() => {
  const main = document.querySelector('article') || document.querySelector('main,[role=main]');
  const text = main && main.innerText.trim().length > 200 ? main.innerText
    : document.body ? document.body.innerText : '';
  return text.slice(0, 60000);
}"""
_KIND = "e => [e.tagName.toLowerCase(), (e.getAttribute('type') || '').toLowerCase()]"


class Acting:
    """The members, by name, on one page."""

    def __init__(self, viewport: Mapping[str, int], workspace: Path) -> None:
        self._viewport = viewport
        self._workspace = workspace

    def of(self, name: str) -> Callable[[Tab, Given], Awaitable[str | None]]:
        """What a member does: it gives its text, or nothing where it is acknowledged."""
        found: Callable[[Tab, Given], Awaitable[str | None]] = getattr(self, f"_{name}")
        return found

    async def _navigate(self, tab: Tab, given: Given) -> str:
        url, wrong = addresses.meant(given["url"])
        if wrong:
            raise ToolError(wrong)
        page, response, tab.stale = tab.page, None, True
        try:
            response = await self._gone_to(page, url)
        except PageTimeout:
            await self._stop(tab)
            raise
        except Error as error:
            if "crash" in error.message or page.is_closed():
                raise
            await self._loaded(page, SETTLE)  # the browser's own page about it
            raise ToolError(f"{url} was not gone to: {addresses.why(error.message)}") from error
        if url in ("back", "forward") and response is None and page.url == addresses.BLANK:
            raise ToolError(f"there is no page to go {url} to")
        loading = await self._loaded(page, LOAD)
        async with bounded():
            tab.title = await page.title()
        tab.stale = False
        title = f" — {state.one_line(tab.title, 200)}" if tab.title else ""
        status = f" (HTTP {response.status})" if response else ""
        said = f"Navigated to {state.one_line(page.url, 4096)}{title}{status}"
        if response is not None and response.status == 403:
            said += await self._forwarders(page)
        return said + (f"\n[it still loads after {LOAD:g} s]" if loading else "")

    async def _gone_to(self, page: Page, url: str) -> Response | None:
        most = COMMIT * 1000
        async with bounded(COMMIT + 1):
            if url == "back":
                return await page.go_back(wait_until="commit", timeout=most)
            if url == "forward":
                return await page.go_forward(wait_until="commit", timeout=most)
            if url == "reload":
                return await page.reload(wait_until="commit", timeout=most)
            try:
                return await page.goto(url, wait_until="commit", timeout=most)
            except Error as error:
                # What was before may end just now, as the browser's own page about a failure.
                if "interrupted by another navigation" not in error.message:
                    raise
                await self._loaded(page, SETTLE)
                return await page.goto(url, wait_until="commit", timeout=most)

    async def _left_click(self, tab: Tab, given: Given) -> None:
        await self._click(tab, given)

    async def _right_click(self, tab: Tab, given: Given) -> None:
        await self._click(tab, given, button="right")

    async def _middle_click(self, tab: Tab, given: Given) -> None:
        await self._click(tab, given, button="middle")

    async def _double_click(self, tab: Tab, given: Given) -> None:
        await self._click(tab, given, times=2)

    async def _triple_click(self, tab: Tab, given: Given) -> None:
        await self._click(tab, given, times=3)

    async def _click(self, tab: Tab, given: Given, button: Any = "left", times: int = 1) -> None:
        held = self._modifiers(given)
        page, target = tab.page, given["target"]
        async with bounded():
            if target["type"] == "ref":
                element = await self._element(page, target)
                async with self._held(page, held):
                    await element.click(button=button, click_count=times, timeout=CLICK * 1000)
            else:
                x, y = self._point(target)
                async with self._held(page, held):
                    await page.mouse.click(x, y, button=button, click_count=times)
        await self._loaded(page, SETTLE, "domcontentloaded")

    async def _hover(self, tab: Tab, given: Given) -> None:
        target = given["target"]
        async with bounded():
            if target["type"] == "ref":
                await (await self._element(tab.page, target)).hover(timeout=CLICK * 1000)
            else:
                await tab.page.mouse.move(*self._point(target))

    async def _left_click_drag(self, tab: Tab, given: Given) -> None:
        begin, end = self._point(given["from"]), self._point(given["target"])
        mouse = tab.page.mouse
        async with bounded():
            await mouse.move(*begin)
            await mouse.down()
            try:
                await mouse.move(*end, steps=10)
            finally:
                await mouse.up()

    async def _left_mouse_down(self, tab: Tab, given: Given) -> None:
        async with bounded():
            await tab.page.mouse.move(*self._point(given["target"]))
            await tab.page.mouse.down()

    async def _left_mouse_up(self, tab: Tab, given: Given) -> None:
        async with bounded():
            await tab.page.mouse.move(*self._point(given["target"]))
            await tab.page.mouse.up()

    async def _mouse_move(self, tab: Tab, given: Given) -> None:
        async with bounded():
            await tab.page.mouse.move(*self._point(given["target"]))

    async def _scroll(self, tab: Tab, given: Given) -> None:
        way = given["scroll_direction"]
        size = given.get("scroll_amount", 3) * _NOTCH * (-1 if way in ("up", "left") else 1)
        async with bounded():
            await tab.page.mouse.move(*self._point(given["target"]))
            await tab.page.mouse.wheel(*((0, size) if way in ("up", "down") else (size, 0)))

    async def _scroll_to(self, tab: Tab, given: Given) -> None:
        async with bounded():
            element = await self._element(tab.page, given["target"])
            await element.scroll_into_view_if_needed(timeout=CLICK * 1000)

    async def _type(self, tab: Tab, given: Given) -> None:
        text, keyboard = given["text"], tab.page.keyboard
        async with bounded(STEP * 2):
            await (keyboard.type(text) if len(text) <= _TYPED_MAX else keyboard.insert_text(text))
        await self._loaded(tab.page, SETTLE, "domcontentloaded")

    async def _key(self, tab: Tab, given: Given) -> None:
        presses = self._presses(given["text"])
        async with bounded(STEP * 2):
            for _ in range(given.get("repeat", 1)):
                for chord in presses:
                    await tab.page.keyboard.press("+".join(chord))
        await self._loaded(tab.page, SETTLE, "domcontentloaded")

    async def _hold_key(self, tab: Tab, given: Given) -> None:
        (chord, *more) = self._presses(given["text"])
        if more:
            raise ToolError("hold_key holds one key or chord, without spaces")
        async with self._held(tab.page, chord):
            await asyncio.sleep(given["duration"])

    async def _form_input(self, tab: Tab, given: Given) -> None:
        value = given["value"]
        if not isinstance(value, str | int | float | bool):
            raise ToolError("value must be a string, a number, or true or false")
        async with bounded():
            element = await self._element(tab.page, given["target"])
            tag, kind = await element.evaluate(_KIND, timeout=CLICK * 1000)
            if kind in ("checkbox", "radio"):
                if not isinstance(value, bool):
                    raise ToolError(f"it is a {kind}: its value is true or false")
                await element.set_checked(value, timeout=CLICK * 1000)
            elif tag == "select":
                await self._select(element, str(value))
            else:
                shown = str(value).lower() if isinstance(value, bool) else _number(value)
                await element.fill(shown, timeout=CLICK * 1000)

    async def _select(self, element: Locator, value: str) -> None:
        options: list[list[str]] = await element.evaluate(
            "e => [...e.options].slice(0, 500).map(o => [o.value, o.text.trim()])",
            timeout=CLICK * 1000,
        )
        for name, place in (("value", 0), ("label", 1)):
            if any(each[place] == value for each in options):
                chosen: dict[str, Any] = {name: value}
                await element.select_option(**chosen, timeout=CLICK * 1000)
                return
        there = ", ".join(repr(each[1]) for each in options[:20])
        raise ToolError(f"there is no option {value!r}; there are: {there}")

    async def _read_page(self, tab: Tab, given: Given) -> str:
        text = await pages.tree(tab.page)
        kept = snapshot.cut(
            text,
            interactive=given.get("filter") == "interactive",
            depth=given.get("depth", snapshot.DEPTH),
            ref=given.get("ref", ""),
        )
        if kept is None:
            raise ToolError(_stale(given["ref"]))
        return kept

    async def _find(self, tab: Tab, given: Given) -> str:
        return snapshot.found(await pages.tree(tab.page), given["query"])

    async def _get_page_text(self, tab: Tab, _given: Given) -> str:
        async with bounded():
            text: str = await tab.page.evaluate(_TEXT)
        if len(text) > TEXT_MAX:
            text = f"{text[:TEXT_MAX]}\n[more is left out]"
        return text or "(empty)"

    async def _wait(self, _tab: Tab, given: Given) -> None:
        await asyncio.sleep(given["duration"])

    async def _file_upload(self, tab: Tab, given: Given) -> None:
        if given.get("document_ids"):
            raise ToolError("there are no documents here: give paths of files in the workspace")
        if not given.get("paths"):
            raise ToolError("paths is required: files in the workspace")
        files = [self._file(each) for each in given["paths"]]
        async with bounded():
            element = await self._element(tab.page, given["target"])
            await element.set_input_files(files, timeout=CLICK * 1000)

    async def _read_console(self, tab: Tab, _given: Given) -> str:
        return _taken(tab.console)

    async def _read_network(self, tab: Tab, _given: Given) -> str:
        return _taken(tab.network)

    async def _javascript_exec(self, tab: Tab, given: Given) -> str:
        try:
            async with bounded():
                value = await tab.page.evaluate(given["text"])
        except PageTimeout:
            raise
        except Error as error:
            if "crash" in error.message.lower() or tab.page.is_closed():
                raise
            said = error.message.removeprefix("Page.evaluate: ")
            raise ToolError(f"the script failed: {said[:2000]}") from error
        text = json.dumps(value, ensure_ascii=False, default=str) if value is not None else "null"
        return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n[more is left out]"

    # What they share.

    async def _element(self, page: Page, target: Given) -> Locator:
        """The element of a ref. Raises ToolError for one that is not there any more."""
        ref = target.get("ref")
        if not ref:
            raise ToolError("target.ref is required for a target of type ref")
        element = page.locator(f"aria-ref={ref.removeprefix('ref=').strip('[]')}")
        try:
            there = await element.count()
        except PageTimeout:
            raise
        except Error as error:
            if "crash" in error.message.lower() or page.is_closed():
                raise
            there = 0
        if not there:
            raise ToolError(_stale(ref))
        return element

    def _point(self, target: Given) -> tuple[int, int]:
        if "x" not in target or "y" not in target:
            raise ToolError("target.x and target.y are required for a target of type coordinate")
        x, y = target["x"], target["y"]
        wide, high = self._viewport["width"], self._viewport["height"]
        if not (0 <= x < wide and 0 <= y < high):
            raise ToolError(f"({x}, {y}) is outside of the viewport, which is {wide}x{high}")
        return x, y

    def _modifiers(self, given: Given) -> list[str]:
        try:
            return keys.modifiers(given["modifiers"]) if given.get("modifiers") else []
        except ValueError as error:
            raise ToolError(f"modifiers: {error}") from error

    def _presses(self, text: str) -> list[list[str]]:
        try:
            return keys.presses(text)
        except ValueError as error:
            raise ToolError(f"text: {error}") from error

    @asynccontextmanager
    async def _held(self, page: Page, chord: list[str]) -> AsyncIterator[None]:
        down: list[str] = []
        try:
            for each in chord:
                async with bounded():
                    await page.keyboard.down(each)
                down.append(each)
            yield
        finally:
            for each in reversed(down):
                with contextlib.suppress(Error):
                    async with bounded(CLICK):
                        await page.keyboard.up(each)

    def _file(self, given: str) -> Path:
        """A file of the workspace. Raises ToolError."""
        path = Path(os.path.realpath(self._workspace / given))
        if not path.is_relative_to(os.path.realpath(self._workspace)):
            raise ToolError(f"{given!r} is outside of the workspace")
        if not path.is_file():
            raise ToolError(f"{given!r} is no file in the workspace")
        return path

    async def _loaded(self, page: Page, seconds: float, state: Any = "load") -> bool:
        """Wait for that; whether it still loads."""
        try:
            async with bounded(seconds + 1):
                await page.wait_for_load_state(state, timeout=seconds * 1000)
        except PageTimeout:
            return True
        return False

    async def _stop(self, tab: Tab) -> None:
        """Go on waiting for no server: while that lasts, the page it is on may answer nothing."""
        with contextlib.suppress(Error):
            async with bounded(1):
                if tab.session:
                    await tab.session.send("Page.stopLoading")

    async def _forwarders(self, page: Page) -> str:
        """What the forwarder says, where it is the one that refuses."""
        async with bounded():
            text: str = await page.evaluate("document.body ? document.body.innerText : ''")
        return f"\n{state.one_line(text.strip(), 500)}" if text.startswith("carpal: ") else ""


def _stale(ref: str) -> str:
    return (
        f"there is no element {ref[:40]!r} on the page any more: refs are of the last read_page or "
        "find of this tab; ask again"
    )


def _number(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _taken(lines: Any) -> str:
    text = "\n".join(lines)
    lines.clear()
    return text or "(empty)"
