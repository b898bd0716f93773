"""What a result says of the browser's tabs, and of what happened besides what was asked. Pure.

`browser_state` is a line of JSON at the end of a result's text: the Messages API has a block of
that shape, which the brain makes of it, and other models read it as it is.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

TABS_MAX = 25
"""The Messages API takes a hundred; so many would need more memory than hands have."""
BEGINS = "[browser_state"
"""What no text of a page may have after the hand's own line, however it goes on: whoever reads a
result takes the last line that begins so."""
_ALL_MAX = 24 * 1024
"""Bytes of the line: the end of a result is never cut that far."""
CHANGES_MAX = 50
"""Of what happened: of more the newest are told."""
URL_MAX = 2048
_TITLE = 200
_DIALOGS_MAX = 3
_MESSAGE_MAX = 200

Json = dict[str, Any]


def line(tabs: Sequence[Json], changes: Sequence[Json]) -> str:
    """The line. Titles and URLs are the page's: they are cut so that all of it has room."""
    for share in (1, 4, 16, 64):
        shown = [
            {
                **each,
                "title": one_line(each["title"], _TITLE // share),
                "url": one_line(each["url"], URL_MAX // share),
            }
            for each in tabs
        ]
        told: Json = {"tabs": shown}
        if changes:
            told["state_changes"] = [
                {**each, "url": one_line(each["url"], URL_MAX // share)} if "url" in each else each
                for each in changes[-CHANGES_MAX:]
            ]
        text = json.dumps(told, separators=(",", ":"), ensure_ascii=True)
        if len(text) <= _ALL_MAX:
            break
    return f"{BEGINS} {text}]"


class Dialogs:
    """Those that pages showed since it was told: the first of them, and how many more."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._more: Counter[str] = Counter()

    def add(self, kind: str, message: str, done: str) -> None:
        """One, and what was done about it."""
        if len(self._first) == _DIALOGS_MAX:
            self._more[done] += 1
            return
        article = "An" if kind[:1] in "aeiou" else "A"
        quoted = f" {json.dumps(one_line(message, _MESSAGE_MAX), ensure_ascii=False)}"
        self._first.append(f"{article} {kind} dialog{quoted if message else ''} was {done}.")

    def told(self) -> list[str]:
        """A line for each of the first, and the numbers of the others."""
        lines = self._first + [
            f"{number} more {'dialogs were' if number > 1 else 'dialog was'} {done}."
            for done, number in self._more.items()
        ]
        self._first = []
        self._more.clear()
        return lines


def one_line(text: str, most: int) -> str:
    """What a page says, on one line."""
    # Cut before it is walked: a page may say any number of megabytes.
    shown = "".join(each if each.isprintable() else " " for each in text[:most])
    return shown if len(text) <= most else shown[: max(0, most - 1)] + "…"
