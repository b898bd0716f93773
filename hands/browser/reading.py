"""What a page is asked: its tree, its text, its console, and what a script of the model's gives."""

import json
from collections import deque

from hands.api import ToolError
from hands.browser import pages, snapshot
from hands.browser.act import MAY, Act
from hands.browser.chromium import Error, PageTimeout
from hands.browser.elements import ref, stale
from hands.browser.pages import bounded

TEXT_MAX = 50_000
_TEXT = """() => {
  const main = document.querySelector('article') || document.querySelector('main,[role=main]');
  const text = main && main.innerText.trim().length > 200 ? main.innerText
    : document.body ? document.body.innerText : '';
  return text.slice(0, 60000);
}"""


async def read_page(act: Act) -> str:
    """The tree, or a part of it."""
    below = ref(act.given["ref"]) if act.given.get("ref") else ""
    kept = snapshot.cut(
        await pages.tree(act.tab.page),
        interactive=act.given.get("filter") == "interactive",
        depth=act.given.get("depth", snapshot.DEPTH),
        ref=below,
    )
    if kept is None:
        raise ToolError(stale(below))
    return kept


async def find(act: Act) -> str:
    """What fits some words."""
    return snapshot.found(await pages.tree(act.tab.page), act.given["query"])


async def get_page_text(act: Act) -> str:
    """The text of it."""
    async with bounded():
        text: str = await act.tab.page.evaluate(_TEXT)
    return _cut(text) or "(empty)"


async def read_console(act: Act) -> str:
    """What was written there since."""
    return _taken(act.tab.console)


async def read_network(act: Act) -> str:
    """What was asked for since."""
    return _taken(act.tab.network)


async def javascript_exec(act: Act) -> str:
    """The value of a script."""
    try:
        async with bounded():
            value = await act.tab.page.evaluate(act.given["text"])
    except PageTimeout:
        raise
    except Error as error:
        if "crash" in error.message.lower() or act.tab.page.is_closed():
            raise
        said = error.message.removeprefix("Page.evaluate: ")
        if "context was destroyed" in said:
            raise ToolError(
                f"the page went elsewhere before the script's value was known: {MAY}"
            ) from error
        raise ToolError(f"the script failed: {said[:2000]}. Of this call: {MAY}") from error
    if value is None:
        return "null"
    try:
        return _cut(json.dumps(value, ensure_ascii=False, default=str))
    except (ValueError, RecursionError) as error:
        raise ToolError(
            "the script ran, and its value cannot be told: it holds itself, or is nested too "
            "deep; give the part of it that is wanted"
        ) from error


def _taken(lines: deque[str]) -> str:
    text = "\n".join(lines)
    lines.clear()
    return text or "(empty)"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n[more is left out]"
