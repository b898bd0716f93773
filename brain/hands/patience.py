"""How long to go on asking for what is out of reach.

Counted from the first failure, not from the first question: a path that
swallows everything lets one question hang for longer than all patience, and
what it hid may be back. Such a question, begun in time, earns patience once more.
"""


class Patience:
    """For one thing that is asked for again and again."""

    def __init__(self, seconds: float) -> None:
        """With 0 seconds the first failure is the last."""
        self._seconds = seconds
        self._until: float | None = None
        self._extended = False

    def over(self, began: float, now: float) -> bool:
        """Whether a question that began then, and failed now, was the last.

        Both are seconds on a monotonic clock.
        """
        if self._until is None:
            self._until = now + self._seconds
        elif began <= self._until < now and not self._extended:
            self._until, self._extended = now + self._seconds, True
        return not self._seconds or now > self._until
