"""The element that a ref names. A ref is text of a model's: it is looked at before it is used."""

import re
from collections.abc import Mapping
from typing import Any

from hands.api import ToolError
from hands.browser.chromium import Error, Locator, Page, PageTimeout
from hands.browser.pages import bounded

_REF = re.compile(r"(?:f[0-9]{1,6})?e[0-9]{1,9}")


def ref(given: str) -> str:
    """The ref that is meant: `e5`, in a frame `f1e5`; a page's tree has it as `[ref=e5]`.

    Raises ToolError for what is none.
    """
    tree = given.startswith("[ref=") and given.endswith("]")
    meant = given[5:-1] if tree else given.removeprefix("ref=")
    if _REF.fullmatch(meant) is None:
        raise ToolError(
            f"{given[:40]!r} is no ref: read_page and find give them, as e5 or f1e5 in a frame"
        )
    return meant


async def element(page: Page, target: Mapping[str, Any]) -> Locator:
    """The element of a target that is one. Raises ToolError for one that is not there any more."""
    if not target.get("ref"):
        raise ToolError("target.ref is required for a target of type ref")
    name = ref(target["ref"])
    found = page.locator(f"aria-ref={name}")
    try:
        async with bounded():
            there = await found.count()
    except PageTimeout:
        raise
    except Error as error:
        if "crash" in error.message.lower() or page.is_closed():
            raise
        there = 0
    if not there:
        raise ToolError(stale(name))
    return found


def stale(name: str) -> str:
    """What is said of a ref whose element is gone."""
    return (
        f"there is no element {name!r} on the page any more: refs are of the last read_page or "
        "find of this tab; ask again"
    )
