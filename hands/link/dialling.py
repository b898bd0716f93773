"""Which brain to dial next: any of those that exist, in an order of chance, the one just left last.

A brain that dies leaves all its daemons at once. Each goes its own way, so that no one brain gets
them all, and none of them waits for the dead one before it tries another.
"""

import random
from collections.abc import Callable, Sequence


class Dialling:
    """An order of addresses that ends with those least likely to answer."""

    def __init__(
        self,
        brains: Callable[[], Sequence[str]],
        shuffle: Callable[[list[str]], None] = random.shuffle,
    ) -> None:
        """`brains` gives every address known, `host:port` each; never none."""
        self._brains = brains
        self._shuffle = shuffle
        self._present: frozenset[str] = frozenset()
        self._left = ""
        self._round: list[str] = []

    def told(self, present: Sequence[str]) -> None:
        """These brains exist now; others that are known may be gone."""
        self._present = frozenset(present)

    def left(self, address: str) -> None:
        """The link to it ended, or it drains: every other one first."""
        self._left = address
        self._round = []

    def next(self) -> str:
        """The address to dial now; each is given once before any is given again."""
        known = list(self._brains())
        self._round = [address for address in self._round if address in known]
        if not self._round:
            self._shuffle(known)
            self._round = sorted(known, key=self._doubt)
        return self._round.pop(0)

    def _doubt(self, address: str) -> int:
        if address == self._left:
            return 2
        return 1 if self._present and address not in self._present else 0
