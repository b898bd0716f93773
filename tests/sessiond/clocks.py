"""A clock that tests move, so that nothing waits for a lease to expire."""

from sessiond.clock import SECOND


class FakeClock:
    """Both readings stand still until moved."""

    def __init__(self, wall: int = 1_700_000_000 * SECOND, steady: int = 5_000 * SECOND) -> None:
        self._wall = wall
        self._steady = steady

    def wall(self) -> int:
        """See `sessiond.clock.Clock`."""
        return self._wall

    def steady(self) -> int:
        """See `sessiond.clock.Clock`."""
        return self._steady

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._wall += int(seconds * SECOND)
        self._steady += int(seconds * SECOND)

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the machine's clock."""
        self._wall += int(seconds * SECOND)
