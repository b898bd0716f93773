"""Text as the phone's own program `input` types it: what it cannot type is refused. Pure.

The phone's shell reads each command, so each part is quoted for it. `input` types a space for `%s`,
so that those two characters are typed by two commands.
"""

import re
from shlex import quote

from hands.api import ToolError

TEXT_MAX = 2000
"""Characters of one call; a phone types some hundred in a second."""
STEPS_MAX = 200
"""Commands that a text may take; an old phone needs half a second for each."""
_KEYS = {"\n": "KEYCODE_ENTER", "\t": "KEYCODE_TAB"}
_PART = re.compile(r"[\n\t]+|[^\n\t]+")
_SHOWN = 10


def steps(text: str) -> list[str]:
    """What the phone's shell is to do, each when the one before went well. Raises ToolError."""
    text = text.replace("\r\n", "\n")
    if not text or len(text) > TEXT_MAX:
        raise ToolError(f"text: {len(text)} characters are not 1 to {TEXT_MAX}; type it in parts")
    cannot = dict.fromkeys(each for each in text if not (" " <= each <= "~" or each in _KEYS))
    if cannot:
        shown = ", ".join(f"{ascii(each)[1:-1]} ({_code(each)})" for each in list(cannot)[:_SHOWN])
        raise ToolError(
            f"text: a phone types only ASCII by adb, and not {shown}; nothing was typed. Leave it "
            "out, or tap it on the keyboard that the screen shows"
        )
    found = [step for part in _PART.findall(text) for step in _steps(part)]
    if len(found) > STEPS_MAX:
        raise ToolError(
            f"text: it is typed in {len(found)} steps, more than {STEPS_MAX}: a line is one, and "
            "each %s begins one; nothing was typed. Type it in parts"
        )
    return found


def _steps(part: str) -> list[str]:
    if part[0] in _KEYS:
        return [f"input keyevent {' '.join(_KEYS[each] for each in part)}"]
    pieces = part.replace("%s", "%\0s").split("\0")
    return [f"input text {quote(each.replace(' ', '%s'))}" for each in pieces]


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"
