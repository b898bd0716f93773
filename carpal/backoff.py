"""Waiting between attempts: full jitter, from the first one on.

What is waited for counts from the failure: how long something worked before it
failed only decides whether the waits start over.
"""

import math
import random
import time
from collections.abc import Callable

STABLE = 60.0
"""Seconds after which what worked counts as stable."""


class Backoff:
    """Delays that grow to a cap and start over after success.

    Whoever uses one says `works` when it does, as often as is handy, and asks for `next` when it
    failed. Each delay is uniform between zero and the current ceiling ("full jitter"), also the
    first, so that a thousand daemons that lose one brain in the same instant do not come back in
    the same instant.
    """

    def __init__(
        self,
        first: float = 0.5,
        cap: float = 60.0,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`first` and `cap` are the ceilings of the first wait and of any, in seconds."""
        self._first = first
        self._cap = cap
        self._uniform = uniform
        self._clock = clock
        self._attempts = 0
        self._works_since: float | None = None

    @property
    def ceiling(self) -> float:
        """The longest the next wait may be after another failure to get it to work, in seconds."""
        return min(self._cap, self._first * 2.0**self._attempts)

    def works(self) -> None:
        """It does now, and from then on until it fails."""
        if self._works_since is None:
            self._works_since = self._clock()

    def next(self) -> float:
        """It failed: seconds to wait before the next attempt.

        The waits start over when it worked stably. Else what fails again and again soon after it
        began to work is tried ever less often, but no wait is longer than half of what it lasted.
        """
        if self._works_since is not None:
            self._ended(self._clock() - self._works_since)
            self._works_since = None
        ceiling = self.ceiling
        self._attempts = min(self._attempts + 1, 32)
        return self._uniform(0.0, ceiling)

    def _ended(self, lasted: float) -> None:
        allowed = lasted / 2 / self._first
        if lasted >= STABLE:
            self._attempts = 0
        elif allowed >= 1:
            self._attempts = min(self._attempts, int(math.log2(allowed)))
