"""The environment that bash says it exports: what `declare -px` prints, byte for byte.

It prints what it would read again, so a value is a word with quotes. No part of this
is slow, whatever the text: code in the hand may have written another.
"""

import re

Environment = dict[bytes, bytes]

# Compiled where they are used, and kept by `re`: a hand is ready sooner.
_FLAGS = re.VERBOSE | re.DOTALL
_VALUE = rb"""
      \$'  (?P<escaped> [^'\\]*+ (?:\\.[^'\\]*+)*+ ) '
    | "    (?P<double>  [^"\\]*+ (?:\\.[^"\\]*+)*+ ) "
    | '    (?P<single>  [^']*+ ) '
    | (?P<bare> [^$"'\\\n]++ | \$(?!') )
"""
"""Of an array, it is a part of one."""
_LINE = (
    rb"""
    declare [ ] -(?P<attributes> \w+ ) [ ] (?P<name> [^=\n]+ )
    (?: = (?P<value> (?:%s)*+ ) )? \n
"""
    % _VALUE
)
_ESCAPE = rb"\\([0-7]{1,3}|.)"
_LETTERS = dict(zip(b"abtnvfrEe\\'\"?", b"\a\b\t\n\v\f\r\x1b\x1b\\'\"?", strict=True))


def environment(text: bytes) -> Environment:
    """What programs get of it. Raises ValueError when it is not what bash prints."""
    found: Environment = {}
    declaration = re.compile(_LINE, _FLAGS)
    at = 0
    while at < len(text):
        line = declaration.match(text, at)
        if line is None:
            raise ValueError(f"not a declaration: {text[at : at + 40]!r}")
        at = line.end()
        # Without a value there is nothing yet to export, and arrays have no form to be exported in.
        if line["value"] is not None and not set(line["attributes"]) & set(b"aA"):
            found[line["name"]] = _meant(line["value"])
    return found


def is_name(name: bytes) -> bool:
    """Whether it can be a variable of bash's: others it passes on as they came, and lists not."""
    return re.fullmatch(rb"[A-Za-z_]\w*+", name) is not None


def _meant(value: bytes) -> bytes:
    word = re.fullmatch(_VALUE, value, _FLAGS)
    if word is None:
        raise ValueError(f"not one word: {value[:40]!r}")
    if word["escaped"] is not None:
        return re.sub(_ESCAPE, _byte, word["escaped"], flags=re.DOTALL)
    if word["double"] is not None:
        return re.sub(rb'\\([$`"\\])', rb"\1", word["double"])
    return word["single"] or word["bare"] or b""


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code.isdigit():
        return bytes([int(code, 8) & 0xFF])
    if code[0] not in _LETTERS:
        raise ValueError(f"an escape that bash does not print: {code!r}")
    return bytes([_LETTERS[code[0]]])
