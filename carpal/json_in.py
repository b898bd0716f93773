"""JSON that somebody else wrote: an object of bounded size and depth, or a refusal. Pure.

Python's own reader answers deep nesting with a RecursionError, and so does
whatever walks the value later; and it reads numbers that JSON does not have.
"""

import json
import math
from typing import Any

import msgspec

from carpal.errors import refuse
from carpal.status import Reason

SIZE_MAX = 16 * 1024 * 1024
"""Bytes of one value: above what any message may have."""
DEPTH_MAX = 100
"""Objects and lists within each other; a walk by recursion over so many is safe."""

Json = dict[str, Any]


class NoNumber(str):
    """The name of a number that JSON does not have, as `read_object` reads it."""

    __slots__ = ()


def read_object(
    data: bytes | str,
    what: str,
    *,
    size: int = SIZE_MAX,
    depth: int = DEPTH_MAX,
    reason: Reason = Reason.INVALID_FIELD,
) -> Json:
    """The JSON object in `data`; `what` names it in the refusal, whose reason is `reason`.

    A number that JSON does not have (`NaN`, or 1e999, too large for a double) is read as its name,
    a `NoNumber`.
    """
    if len(data) > size:
        raise refuse(reason, f"{what}: has {len(data)} bytes, and may have {size}", field=what)
    try:
        value = _DECODER.decode(data if isinstance(data, str) else _text(data))
    except RecursionError:
        raise refuse(reason, f"{what}: is nested too deeply", field=what) from None
    except ValueError as error:
        raise refuse(reason, f"{what}: is not JSON: {error}", field=what) from None
    if not isinstance(value, dict):
        raise refuse(reason, f"{what}: must be a JSON object", field=what)
    # Most have fewer brackets than that in all, and need no walk to tell.
    opening = (b"{", b"[") if isinstance(data, bytes) else ("{", "[")
    if sum(map(data.count, opening)) > depth and deeper(value, depth):  # type: ignore[arg-type]
        raise refuse(reason, f"{what}: is nested more than {depth} deep", field=what)
    return value


def plain_object(data: bytes, *, size: int = SIZE_MAX, depth: int = DEPTH_MAX) -> Json | None:
    """The object in `data`, as `read_object` has it, where nothing about it is odd; else None.

    Odd are numbers that JSON does not have, half characters, and whatever `read_object` refuses:
    that one then says which. Several times as fast.
    """
    if len(data) > size:
        return None
    try:
        value = _PLAIN.decode(data)
    except (msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    if data.count(b"{") + data.count(b"[") > depth and deeper(value, depth):
        return None
    return value


def no_number(value: Any, at: str) -> str:
    """Where the first `NoNumber` is in a value that `read_object` read, as in `at.a[0]`.

    `at` is the value's own name. Empty where there is none.
    """
    if isinstance(value, NoNumber):
        return at
    if isinstance(value, dict):
        inner = ((each, f"{at}.{name}") for name, each in value.items())
    elif isinstance(value, list):
        inner = ((each, f"{at}[{index}]") for index, each in enumerate(value))
    else:
        return ""
    return next((found for found in (no_number(*each) for each in inner) if found), "")


def deeper(value: Any, depth: int) -> bool:
    """Whether a JSON value has more than `depth` objects and lists within each other."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _text(data: bytes) -> str:
    """As `json.loads` reads bytes: it looks at the first few to tell UTF-8 from UTF-16 and 32."""
    plain = data[:1] == b"{" and 0 not in data[1:4]
    return data.decode("utf-8" if plain else json.detect_encoding(data), "surrogatepass")


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else NoNumber(text)


_DECODER = json.JSONDecoder(parse_constant=NoNumber, parse_float=_number)
_PLAIN = msgspec.json.Decoder()
