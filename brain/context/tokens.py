"""How many tokens something takes, as far as that is known without asking anybody. Pure.

What the API counted at the last reply is exact; what came since is estimated,
a little too high rather than too low.
"""

from typing import Any

Json = dict[str, Any]

_MEDIA = 1600 * 7 // 2
"""Bytes' worth of an image, or a page: the most that the API makes of one."""
_AROUND = 8
"""Of what stands around a block."""


def estimate(value: Any) -> int:
    """About how many tokens a JSON value takes: two in seven bytes of it."""
    return _bytes(value) * 2 // 7 + _AROUND


def counted(usage: Json) -> int:
    """What the API counted for a reply: all that it was asked, and what it said. 0: unknown."""
    kinds = (
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
    )
    given = (usage.get(kind) for kind in kinds)
    return sum(count for count in given if isinstance(count, int))


def _bytes(value: Any) -> int:
    """As JSON, about; not made for it, since every request asks."""
    if isinstance(value, str):
        size = len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
        return size + 2 + value.count("\n") + value.count('"')
    if isinstance(value, dict):
        if value.get("type") in ("base64", "blob") and "data" in value:
            return _MEDIA
        return sum(_bytes(key) + _bytes(each) + 2 for key, each in value.items()) + 2
    if isinstance(value, list):
        return sum(_bytes(each) + 1 for each in value) + 2
    return 6
