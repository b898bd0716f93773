"""What must not be logged now: the secrets of requests under way, and no longer than they are."""

from collections.abc import Iterator
from contextlib import contextmanager

from vault.redact.stream import Patterns

_under_way: list[Patterns] = []


@contextmanager
def hidden(patterns: Patterns) -> Iterator[None]:
    """While this lasts, these are struck out of what is logged."""
    _under_way.append(patterns)
    try:
        yield
    finally:
        # By identity: patterns are never compared.
        del _under_way[next(at for at, each in enumerate(_under_way) if each is patterns)]


def struck_out(text: str) -> str:
    """A text without them."""
    for patterns in tuple(_under_way):
        text, _ = patterns.text(text)
    return text
