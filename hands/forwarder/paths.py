"""A URL's path as a rule looks at it: one that no server reads as another.

Pure. Servers differ in what they make of `..`, `%2e`, `%2F`, `\\` or `;`, so a
path with any of that fits no rule that names paths.
"""

import re
from urllib.parse import unquote

_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ROUNDS = 4
"""How often a path is decoded to see what a server that decodes again would see."""


def plain(path: str) -> str:
    """The path, without its query, in its one form. ValueError says what makes it doubtful."""
    if not path.startswith("/"):
        raise ValueError("it does not begin with /")
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise ValueError("it holds a % that begins no code")
    seen = path
    for _ in range(_ROUNDS):
        _look(seen)
        decoded = unquote(seen, "latin-1")
        if decoded.count("/") != seen.count("/"):
            raise ValueError("it holds an encoded /")
        if decoded == seen:
            return _PERCENT.sub(_shortest, path)
        seen = decoded
    raise ValueError("it is encoded again and again")


def _look(path: str) -> None:
    if any(letter < " " or letter in "\x7f\\" for letter in path):
        raise ValueError("it holds a backslash or a control character")
    for segment in path.split("/"):
        if segment.partition(";")[0] in (".", ".."):
            raise ValueError("it holds the segment . or ..")


def _shortest(found: re.Match[str]) -> str:
    letter = chr(int(found.group(1), 16))
    return letter if letter in _UNRESERVED else found.group().upper()


def fits(pattern: str, path: str) -> bool:
    """Whether a plain path is as the pattern says, in which `*` stands for any characters."""
    first, *rest = pattern.split("*")
    if not rest:
        return path == pattern
    *middle, last = rest
    if not (path.startswith(first) and path.endswith(last)):
        return False
    at, end = len(first), len(path) - len(last)
    for piece in middle:
        found = path.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end
