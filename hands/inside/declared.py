"""The environment that bash says it exports: what `declare -px` prints, byte for byte.

It prints what it would read again, so a value is a word with quotes. No part of this
is slow, whatever the text: code in the hand may have written another.
"""

import functools
import re

Environment = dict[bytes, bytes]

_QUOTED = rb"""
      \$'  %s [^'\\]*+ (?:\\.[^'\\]*+)*+ ) '
    | "    %s [^"\\]*+ (?:\\.[^"\\]*+)*+ ) "
    | '    %s [^']*+ ) '
"""
_LINE = rb"""
    declare [ ] -(?P<attributes> \w+ ) [ ] (?P<name> [^=\n]+ )
    (?: = (?: (?P<value> %s ) | (?P<array> (?: %s | [^$"'\\\n]++ | \$(?!') )++ ) ) )? \n
""" % (
    _QUOTED % (b"(?P<escaped>", b"(?P<double>", b"(?P<single>"),
    _QUOTED % (b"(?:", b"(?:", b"(?:"),
)
_LETTERS = dict(zip(b"abtnvfrEe\\'\"?", b"\a\b\t\n\v\f\r\x1b\x1b\\'\"?", strict=True))


def environment(text: bytes) -> Environment:
    """What programs get of it. Raises ValueError when it is not what bash prints."""
    found: Environment = {}
    declaration = _declaration()
    at = 0
    while at < len(text):
        line = declaration.match(text, at)
        if line is None:
            raise ValueError(f"not a declaration: {text[at : at + 40]!r}")
        at = line.end()
        # Without a value there is nothing yet to export, and arrays have no form to be exported in.
        if not set(line["attributes"]) & set(b"aA"):
            if line["array"] is not None:
                raise ValueError(f"not one word: {line['array'][:40]!r}")
            if line["value"] is not None:
                found[line["name"]] = _meant(line)
    return found


@functools.cache
def _declaration() -> re.Pattern[bytes]:
    """Compiled by the first who needs it: a hand is ready sooner."""
    return re.compile(_LINE, re.VERBOSE | re.DOTALL)


def is_name(name: bytes) -> bool:
    """Whether it can be a variable of bash's: others it passes on as they came, and lists not."""
    return re.fullmatch(rb"[A-Za-z_]\w*+", name) is not None


def _meant(line: re.Match[bytes]) -> bytes:
    escaped, double, single = line.group("escaped", "double", "single")
    if escaped is not None:
        return re.sub(rb"\\([0-7]{1,3}|.)", _byte, escaped, flags=re.DOTALL)
    if double is not None:
        return re.sub(rb'\\([$`"\\])', rb"\1", double) if b"\\" in double else double
    return single or b""


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code.isdigit():
        return bytes([int(code, 8) & 0xFF])
    if code[0] not in _LETTERS:
        raise ValueError(f"an escape that bash does not print: {code!r}")
    return bytes([_LETTERS[code[0]]])
