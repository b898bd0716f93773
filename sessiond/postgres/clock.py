"""The database's clock: the one by which all its processes end leases.

A transaction has its true reading. Between transactions there is an estimate, for timers:
the last reading, and what has passed here since. It lags by the way back from the
database, so a timer is late rather than early.
"""

import time


class PostgresClock:
    """Implements `clock.Clock`; both readings are the database's."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - _passed()

    def measured(self, now: int) -> None:
        """The database has just said what time it is, in nanoseconds since 1970."""
        self._offset = now - _passed()

    def wall(self) -> int:
        """See `clock.Clock`."""
        return _passed() + self._offset

    def steady(self) -> int:
        """See `clock.Clock`. It steps if somebody sets the database's clock: nobody should."""
        return self.wall()


def _passed() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
