"""One call of a member on one tab: what was given, and what of it is done for certain."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hands.api import Context, ToolError
from hands.browser.chromium import Error
from hands.browser.tabs import Tab

_AGAIN = 3
"""Of one call: a page that answers does these once or twice."""
MAY = "it may have partly happened"


@dataclass(slots=True)
class Act:
    """One of them."""

    tab: Tab
    given: Mapping[str, Any]
    viewport: Mapping[str, int]
    context: Context
    so_far: str = ""
    """How much of it was done, for when it ends in the middle; empty where nobody counts."""
    went: int = 0
    showed: int = 0
    """What its tab had counted of these before."""

    @property
    def may(self) -> str:
        """What is said of one that ended in the middle."""
        return self.so_far or MAY

    @property
    def silent(self) -> str:
        """What its page does, which answered nothing."""
        went, showed = self.tab.went - self.went, self.tab.showed - self.showed
        does = []
        if went >= _AGAIN:
            does.append(f"goes elsewhere or reloads again and again, {went} times in this call")
        if showed >= _AGAIN:
            does.append(f"shows dialogs again and again, {showed} in this call")
        return " and ".join(does) or (
            "does not answer: its scripts run without end, or leave it no time"
        )

    def point(self, target: Mapping[str, Any]) -> tuple[int, int]:
        """The pixels of a target that is a point. Raises ToolError."""
        if "x" not in target or "y" not in target:
            raise ToolError("target.x and target.y are required for a target of type coordinate")
        x, y = target["x"], target["y"]
        wide, high = self.viewport["width"], self.viewport["height"]
        if not (0 <= x < wide and 0 <= y < high):
            raise ToolError(f"({x}, {y}) is outside of the viewport, which is {wide}x{high}")
        return x, y

    async def pause(self, seconds: float) -> None:
        """Let that pass. Raises Error as soon as the page crashes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.tab.crashed.wait()
                raise Error("the page crashed")
