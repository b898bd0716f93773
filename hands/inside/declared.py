"""The environment that bash says it exports: what `declare -px` prints, byte for byte.

It prints what it would read again, so a value is a word with quotes. No part of this
is slow, whatever the text: code in the hand may have written another.
"""

import re

Environment = dict[bytes, bytes]

_PIECE = re.compile(
    rb"""
      \$'  (?P<escaped> [^'\\]*+ (?:\\.[^'\\]*+)*+ ) '
    | "    (?P<double>  [^"\\]*+ (?:\\.[^"\\]*+)*+ ) "
    | '    (?P<single>  [^']*+ ) '
    | (?P<bare> [^$"'\\\n]++ | \$(?!') )
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE = re.compile(
    rb"declare[ ]-(?P<attributes>\w+)[ ](?P<name>[^=\n]+)(?:=(?P<value>(?:%s)*+))?\n"
    % re.sub(rb"\?P<\w+>", b"?:", _PIECE.pattern),
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_IN_DOUBLE = re.compile(rb'\\([$`"\\])')
_LETTERS = dict(zip(b"abtnvfrEe\\'\"?", b"\a\b\t\n\v\f\r\x1b\x1b\\'\"?", strict=True))
_NAME = re.compile(rb"[A-Za-z_]\w*+")


def environment(text: bytes) -> Environment:
    """What programs get of it. Raises ValueError when it is not what bash prints."""
    found: Environment = {}
    at = 0
    while at < len(text):
        line = _LINE.match(text, at)
        if line is None:
            raise ValueError(f"not a declaration: {text[at : at + 40]!r}")
        at = line.end()
        # Without a value there is nothing yet to export, and arrays have no form to be exported in.
        if line["value"] is not None and not set(line["attributes"]) & set(b"aA"):
            found[line["name"]] = b"".join(map(_meant, _PIECE.finditer(line["value"])))
    return found


def is_name(name: bytes) -> bool:
    """Whether it can be a variable of bash's: others it passes on as they came, and lists not."""
    return _NAME.fullmatch(name) is not None


def _meant(piece: re.Match[bytes]) -> bytes:
    if piece["escaped"] is not None:
        return _ESCAPE.sub(_byte, piece["escaped"])
    if piece["double"] is not None:
        return _IN_DOUBLE.sub(rb"\1", piece["double"])
    return piece["single"] or piece["bare"] or b""


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code.isdigit():
        return bytes([int(code, 8) & 0xFF])
    if code[0] not in _LETTERS:
        raise ValueError(f"an escape that bash does not print: {code!r}")
    return bytes([_LETTERS[code[0]]])
