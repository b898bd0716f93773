"""What a pattern of the machine's owner is: bytes of known kinds, one after the other. Pure.

Only its last kind may come any number of times up to a bound: so a search never goes back,
whatever it is given, and what could still become a match is known without waiting for more
than a pattern has.
"""

import re
from dataclasses import dataclass
from functools import cached_property

LEAST, REQUIRED_MAX, LONGEST_MAX = 4, 256, 4096
"""Bytes: of the shortest match there may be, of what a match must have, and of the longest."""
_KINDS = {
    "d": frozenset(b"0123456789"),
    "w": frozenset(b"0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "s": frozenset(b" \t\r\n\f\v"),
}
_CONTROL = {"n": 10, "r": 13, "t": 9}
_ANY = frozenset(range(256)) - {10}
_TIMES = re.compile(r"\{([0-9]{1,5})(?:,([0-9]{1,5}))?\}")


@dataclass(frozen=True)
class Pattern:
    """One of them."""

    text: str
    """As its owner wrote it."""
    required: tuple[frozenset[int], ...]
    """What each byte of the shortest match may be."""
    more: int
    """Bytes of the last kind that may follow."""

    @cached_property
    def begins(self) -> "re.Pattern[bytes]":
        """Matches the bytes that each match has."""
        return re.compile(b"".join(_as_class(each) for each in self.required), re.DOTALL)

    @cached_property
    def run(self) -> "re.Pattern[bytes]":
        """Matches any number of bytes of the last kind."""
        return re.compile(_as_class(self.required[-1]) + b"*", re.DOTALL)

    @cached_property
    def even(self) -> "re.Pattern[bytes] | None":
        """Where all its bytes are of one kind: matches what all its matches cover together."""
        if len(set(self.required)) > 1:
            return None
        return re.compile(_as_class(self.required[0]) + b"{%d,}" % len(self.required), re.DOTALL)

    @property
    def longest(self) -> int:
        """Bytes of the longest match."""
        return len(self.required) + self.more


def parse(text: str) -> Pattern:
    """A pattern from its text. ValueError says what is wrong with it.

    Characters stand for themselves; `[a-z0-9]` and `[^"]` for one byte among those, or not among
    them; `.` for any but the end of a line; `\\d`, `\\w`, `\\s` for a digit, a letter or digit or
    `_`, white space; `\\` before any other sign for that sign. `{n}` behind one is n of it, and
    `{n,m}` behind the last is n to m.
    """
    required: list[frozenset[int]] = []
    more = at = 0
    while at < len(text):
        if more:
            raise ValueError("{n,m} may stand at its end only")
        kinds, at = _one(text, at)
        least = most = 1
        if times := _TIMES.match(text, at):
            least = int(times[1])
            most = least if times[2] is None else int(times[2])
            at = times.end()
            if not 1 <= least <= most:
                raise ValueError(f"{times[0]} wants n from 1 on, and m from n on")
            if len(kinds) > 1:
                raise ValueError(f"{times[0]} stands behind a sign that is more than one byte")
        elif at < len(text) and text[at] in "*+?{":
            raise ValueError(f"{text[at]!r} has no bound: write {{n}} or {{n,m}}, or \\{text[at]}")
        required += kinds * least
        more = most - least
        if len(required) > REQUIRED_MAX or len(required) + more > LONGEST_MAX:
            raise ValueError(
                f"a match must have at most {REQUIRED_MAX} bytes, and may have {LONGEST_MAX}"
            )
    if len(required) < LEAST:
        raise ValueError(f"a match must have {LEAST} bytes at least, or words would be struck out")
    return Pattern(text, tuple(required), more)


def _one(text: str, at: int) -> tuple[list[frozenset[int]], int]:
    sign = text[at]
    if sign in "()|^$*+?{}]":
        raise ValueError(f"{sign!r} means nothing here; for the sign itself write \\{sign}")
    if sign == ".":
        return [_ANY], at + 1
    if sign == "[":
        kind, at = _set(text, at + 1)
        return [kind], at
    if sign == "\\":
        meant, at = _escaped(text, at)
        return ([meant] if isinstance(meant, frozenset) else _bytes(meant)), at
    return _bytes(sign), at + 1


def _bytes(sign: str) -> list[frozenset[int]]:
    return [frozenset((byte,)) for byte in sign.encode()]


def _escaped(text: str, at: int) -> tuple[frozenset[int] | str, int]:
    sign = text[at + 1 : at + 2]
    if not sign:
        raise ValueError("it ends with a \\")
    if sign in _KINDS:
        return _KINDS[sign], at + 2
    if sign in _CONTROL:
        return chr(_CONTROL[sign]), at + 2
    if sign.isalnum():
        raise ValueError(f"\\{sign} is not known here; there are \\d \\w \\s \\n \\r \\t")
    return sign, at + 2


def _set(text: str, at: int) -> tuple[frozenset[int], int]:
    negated = text[at : at + 1] == "^"
    at += negated
    found: set[int] = set()
    while text[at : at + 1] not in ("]", ""):
        one, at = _member(text, at)
        if isinstance(one, frozenset):
            found |= one
        elif text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("]", ""):
            last, at = _member(text, at + 1)
            if isinstance(last, frozenset) or ord(last) < ord(one):
                raise ValueError(f"[{one}-…] is no range")
            found |= set(range(ord(one), ord(last) + 1))
        else:
            found.add(ord(one))
    if at >= len(text):
        raise ValueError("a [ is not closed")
    if not found:
        raise ValueError("[] holds nothing")
    return (frozenset(range(256)) - found if negated else frozenset(found)), at + 1


def _member(text: str, at: int) -> tuple[frozenset[int] | str, int]:
    if text[at] == "\\":
        return _escaped(text, at)
    if not text[at].isascii():
        raise ValueError(f"{text[at]!r} in [] is more than one byte; write it outside of them")
    return text[at], at + 1


def _as_class(kinds: frozenset[int]) -> bytes:
    if len(kinds) == 1:
        return re.escape(bytes(kinds))
    return b"[" + b"".join(b"\\x%02x" % each for each in sorted(kinds)) + b"]"
