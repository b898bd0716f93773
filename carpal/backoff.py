"""Waiting between attempts: full jitter, from the first one on.

What is waited for counts from the failure: how long something worked before it
failed only decides whether the waits start over.
"""

import math
import random
from collections.abc import Callable

STABLE = 60.0
"""Seconds after which what was connected counts as having worked."""


class Backoff:
    """Delays that grow to a cap and start over after success.

    Each delay is uniform between zero and the current ceiling ("full
    jitter"), also the first, so that a thousand daemons that lose one brain
    in the same instant do not come back in the same instant.
    """

    def __init__(
        self,
        first: float = 0.5,
        cap: float = 60.0,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first = first
        self._cap = cap
        self._uniform = uniform
        self._attempts = 0

    @property
    def ceiling(self) -> float:
        """The longest the next wait may be, in seconds."""
        return min(self._cap, self._first * 2.0**self._attempts)

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        ceiling = self.ceiling
        self._attempts = min(self._attempts + 1, 32)
        return self._uniform(0.0, ceiling)

    def ended(self, lasted: float) -> None:
        """What was connected for `lasted` seconds failed; zero when it never was connected.

        It starts over when that was stable. Else what fails again and again soon after it
        connected is dialled ever less often, but no wait is longer than half of what it lasted.
        """
        allowed = lasted / 2 / self._first
        if lasted >= STABLE:
            self.reset()
        elif allowed >= 1:
            self._attempts = min(self._attempts, int(math.log2(allowed)))

    def reset(self) -> None:
        """The last attempt lasted: start over."""
        self._attempts = 0
