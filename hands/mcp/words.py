"""What a server says of itself, fit to be read: no byte of it moves a terminal or turns a line.

Pure. What is not to be seen goes: controls, what turns the direction of writing, what marks a
letter without being one. Only line ends and tabs stay, where lines are meant.
"""

import unicodedata

_SPACES = {"Zs": " ", "Zl": "\n", "Zp": "\n"}


def plain(text: str) -> str:
    """Lines of it."""
    return "".join(
        each
        if each.isprintable() or each in "\n\t"
        else _SPACES.get(unicodedata.category(each), "")
        for each in text.replace("\r\n", "\n")
    )


def word(value: object, most: int) -> str:
    """A part of a line of ours, of so many characters at most; a space for what cannot be shown."""
    text = str(value or "")
    shown = "".join(each if each.isprintable() else " " for each in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
