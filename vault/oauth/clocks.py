"""The machine's clock, believed of a token only while nobody sets it."""

import time
from collections.abc import Callable

from vault.oauth.ports import Credential, Key, Tokens
from vault.oauth.when import due, moved, usable


class Clocks:
    """Of one process: what the clock says, beside one that nobody sets."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock
        """Unix seconds."""
        self._seen = (clock(), time.monotonic())
        self._doubted = False
        self._sure: dict[Key, int] = {}

    def usable(self, tokens: Tokens) -> bool:
        """Whether a server may still take them."""
        return usable(tokens, self.now())

    def due(self, held: Credential) -> bool:
        """By the clock, unless that was set since these tokens came: then a 401 says it."""
        seen = (self.now(), time.monotonic())
        if moved(*seen, *self._seen):
            self._doubted = True
            self._sure.clear()
        self._seen = seen
        if self._doubted and self._sure.get(held.key) != held.generation:
            return False
        return due(held.tokens, seen[0], f"{'/'.join(held.key)} {held.generation}")

    def came(self, key: Key, generation: int) -> None:
        """Tokens that came just now: their end is by the clock as it is."""
        self._sure[key] = generation
