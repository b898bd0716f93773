"""Elements of forms: values, choices, files."""

import os
from pathlib import Path
from typing import Any

from hands.api import ToolError
from hands.browser.act import Act
from hands.browser.chromium import Locator
from hands.browser.elements import element
from hands.browser.pages import bounded
from hands.browser.pointing import CLICK

_EXACT = 2**53
"""Below it each whole number is one of a browser's own."""
_KIND = "e => [e.tagName.toLowerCase(), (e.getAttribute('type') || '').toLowerCase()]"


async def form_input(act: Act) -> None:
    """Set an element, by what it is."""
    value = act.given["value"]
    if not isinstance(value, str | int | float | bool):
        raise ToolError("value must be a string, a number, or true or false")
    async with bounded():
        found = await element(act.tab.page, act.given["target"])
        tag, kind = await found.evaluate(_KIND, timeout=CLICK * 1000)
        if kind in ("checkbox", "radio"):
            if not isinstance(value, bool):
                raise ToolError(f"it is a {kind}: its value is true or false")
            await found.set_checked(value, timeout=CLICK * 1000)
        elif tag == "select":
            await _select(found, written(value))
        else:
            await found.fill(written(value), timeout=CLICK * 1000)


async def file_upload(act: Act) -> None:
    """Give files of the workspace to a field."""
    if act.given.get("document_ids"):
        raise ToolError("there are no documents here: give paths of files in the workspace")
    if not act.given.get("paths"):
        raise ToolError("paths is required: files in the workspace")
    files = [_file(act.context.folder, each) for each in act.given["paths"]]
    async with bounded():
        found = await element(act.tab.page, act.given["target"])
        await found.set_input_files(files, timeout=CLICK * 1000)


async def _select(found: Locator, value: str) -> None:
    options: list[list[str]] = await found.evaluate(
        "e => [...e.options].slice(0, 500).map(o => [o.value, o.text.trim()])",
        timeout=CLICK * 1000,
    )
    for name, place in (("value", 0), ("label", 1)):
        if any(each[place] == value for each in options):
            chosen: dict[str, Any] = {name: value}
            await found.select_option(**chosen, timeout=CLICK * 1000)
            return
    there = ", ".join(repr(each[1]) for each in options[:20])
    raise ToolError(f"there is no option {value!r}; there are: {there}")


def _file(workspace: Path, given: str) -> Path:
    """A file of the workspace. Raises ToolError."""
    try:
        path = Path(os.path.realpath(workspace / given))
        there = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        raise ToolError(f"{given[:200]!r} is no file in the workspace") from None
    if not path.is_relative_to(os.path.realpath(workspace)):
        raise ToolError(f"{given[:200]!r} is outside of the workspace")
    if not there:
        raise ToolError(f"{given[:200]!r} is no file in the workspace")
    return path


def written(value: str | float | bool) -> str:
    """A value as it stands in a form: all digits of a number, and no `.0` of a whole one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    return str(value)
