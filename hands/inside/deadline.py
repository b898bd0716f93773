"""The orphan deadline: how long a hand goes on without a brain."""

import time
from collections.abc import Callable


def boottime() -> float:
    """Seconds on a clock that counts the machine's sleep: nothing else tells how long it was."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Deadline:
    """Time since the last contact with a brain whose own lease is live.

    Once over it stays over: contact that comes later comes too late, for by
    then a brain may have said in the log that the hand ended itself.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = boottime) -> None:
        self.seconds = seconds
        self._clock = clock
        self._contact = clock()
        self._over = False

    def contact(self, ago: float = 0.0) -> None:
        """A brain with a live lease was heard, `ago` seconds before now."""
        if not self.over:
            self._contact = self._clock() - ago

    @property
    def quiet(self) -> float:
        """Seconds since the last contact."""
        return max(0.0, self._clock() - self._contact)

    @property
    def left(self) -> float:
        """Seconds until the hand must end itself."""
        return 0.0 if self.over else max(0.0, self.seconds - self.quiet)

    @property
    def over(self) -> bool:
        """Whether it must."""
        self._over = self._over or self.quiet > self.seconds
        return self._over
