"""Text from models, people and machines, made fit to be sent on. Pure.

JSON can hold half a character (a lone surrogate, `"\\ud83d"`), which no UTF-8
can, and Python's JSON numbers that no other has (`Infinity`, from `1e999`).
Left in, they would fail every later request that quotes them.
"""

import json
import math
from typing import Any


def canonical(value: Any) -> bytes:
    """A value as the one JSON that is hashed: of a request, of a checkpoint."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def clean(value: Any) -> Any:
    """The same JSON value, each half character replaced by U+FFFD, what is no number by its name.

    It may be nested as deeply as `carpal.json_in` lets anything be.
    """
    # By the exact type, and ASCII first: every event of a log goes through here when it is read.
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _whole(value)
    if kind is dict:
        return {key if key.isascii() else _whole(key): clean(item) for key, item in value.items()}
    if kind is list:
        return [clean(item) for item in value]
    if kind is float and not math.isfinite(value):
        return str(value)
    return _whole(value) if isinstance(value, str) else value


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shorten(text: str, size: int) -> str:
    """At most about `size` bytes as JSON: the middle goes, and a line says how much."""
    if len(text) * 6 <= size or json_bytes(text) <= size:
        return text
    # The worst a character can become in JSON is six bytes; halves of that are safe.
    keep = size // 2
    head, tail = text[:keep], text[-keep:]
    while json_bytes(head) + json_bytes(tail) > size:
        head, tail = head[: len(head) * 3 // 4], tail[len(tail) // 4 :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[{left_out} characters left out]\n{tail}"


def json_bytes(text: str) -> int:
    """How many bytes a text takes as JSON in UTF-8."""
    escaped = sum(5 if char < " " else 1 for char in text if char < " " or char in '"\\')
    return len(text.encode("utf-8", "replace")) + escaped + 2
