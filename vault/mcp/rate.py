"""How many calls a session may make at a server in a minute. Pure, but for the clock it is given.

A bucket that holds a minute's calls, and fills as time goes: who was quiet may hurry for a moment.
It is of the session and not of its grant, which each driver buys anew.
"""

from collections.abc import Callable

_MINUTE = 60.0
Key = tuple[str, str]


class Rates:
    """Of all sessions."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds, and never goes back."""
        self._clock = clock
        self._left: dict[Key, tuple[float, float]] = {}
        """Calls that are left, and as of when. What is not here has all of them."""
        self._looked = clock()

    def take(self, session: str, server: str, most: int) -> bool:
        """One call, of `most` a minute; False when there is none now."""
        now = self._clock()
        self._forget(now)
        left, since = self._left.get((session, server), (float(most), now))
        left = min(float(most), left + (now - since) * most / _MINUTE)
        if left < 1.0:
            return False
        self._left[session, server] = (left - 1.0, now)
        return True

    def _forget(self, now: float) -> None:
        """After a minute every bucket is full again."""
        if now - self._looked >= _MINUTE:
            self._looked = now
            self._left = {
                key: (left, since)
                for key, (left, since) in self._left.items()
                if now - since < _MINUTE
            }
