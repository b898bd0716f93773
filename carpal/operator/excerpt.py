"""What to show of a result whose beginning was, or was not, shown as it came. Pure.

A tool that writes a flood keeps the first and the last of it and says, in its
text, how many bytes it left out. That number, and what we leave out ourselves,
is said in one line; the end of the text is always shown.
"""

import re
from collections.abc import Collection

WHOLE_LINES = 40
"""Lines of a text that is shown whole."""
HALF_LINES = 20
"""Lines shown of the beginning (unless it was shown live) and of the end of a longer one."""
_OMITTED = re.compile(r"\[([0-9]+) bytes omitted\]\Z")


def unseen(text: str, shown: str, said: Collection[str] = ()) -> str:
    """What is still to be shown of a result's `text`, when `shown` came live before it.

    Empty when that is nothing. `said` is as for `without_remark`.
    """
    begun = bool(shown)
    if begun and text.startswith(shown):
        text = text[len(shown) :]
    elif begun and len(text) <= len(shown):
        return ""  # bytes that are no text, shown differently: all of it came
    text = without_remark(text, said).rstrip()
    return "\n".join(_excerpt(text.split("\n"), begun=begun)) if text else ""


def without_remark(text: str, said: Collection[str]) -> str:
    """A result's text without its last line if that only says what is `said` anyway."""
    rest, _, last = text.rstrip().rpartition("\n")
    return rest if last in said else text


def _excerpt(lines: list[str], *, begun: bool) -> list[str]:
    if len(lines) <= WHOLE_LINES:
        return lines
    head = 0 if begun else HALF_LINES
    left_out = lines[head:-HALF_LINES]
    omitted = next((found[1] for line in left_out if (found := _OMITTED.match(line))), None)
    kept = len(left_out) - (omitted is not None)
    note = f"{kept} more lines in the log"
    if omitted is not None:
        note = f"{omitted} bytes omitted; {note}"
    return [*lines[:head], f"[{note}]", *lines[-HALF_LINES:]]
