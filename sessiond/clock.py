"""The store's clock, which tests replace: they never wait for a lease to expire."""

import time
from typing import Protocol

SECOND = 1_000_000_000
"""Nanoseconds."""


class Clock(Protocol):
    """Two readings: what time it is, and how much has passed."""

    def wall(self) -> int:
        """Nanoseconds since 1970; may step. For event times and for when to wake."""

    def steady(self) -> int:
        """Nanoseconds since some start; never steps, counts sleep. For leases and backoff."""


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns()

    def steady(self) -> int:
        """CLOCK_BOOTTIME: a lease also runs out while the machine sleeps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
