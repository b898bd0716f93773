"""Which hand of a check has which unit: of a type with units no more hands are made than it has.

A daemon chooses and resets by itself. For a server that has none before it the checks do both.
"""

from carpal.verdict import Skipped
from hands.conformance.subject import Subject

RESET = 60.0
"""Seconds that a reset may take, as a daemon gives it."""


class Held:
    """Of one check."""

    def __init__(self, subject: Subject) -> None:
        self.counted = subject.has_units
        """Whether the type has units at all."""
        self.ours = subject.has_units and "claim" not in subject.capabilities
        """Whether the checks choose them, and have them reset."""
        self._there = subject.units
        self._by: dict[str, str] = {}

    def take(self, hand_id: str) -> bool:
        """A hand is to have one; False when it has. Skipped when there are too few."""
        if not self.counted or hand_id in self._by:
            return False
        free = [each for each in self._there if each not in self._by.values()]
        if not free:
            have = f"{len(self._there)} that can be used" if self._there else "none to use"
            raise Skipped(f"needs {len(self._by) + 1} units at once, and the type has {have}")
        self._by[hand_id] = free[0]
        return True

    def unit_of(self, hand_id: str) -> str:
        """The unit that a hand has; empty for one without. A daemon may have given it another."""
        return self._by.get(hand_id, "")

    def give_back(self, hand_id: str) -> str:
        """A hand is over, or was not made; the unit that it had, or nothing."""
        return self._by.pop(hand_id, "")
