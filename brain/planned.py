"""The ends of a link that are known when it begins: its drain, and our certificate's end."""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime

from brain import drains
from brain.daemon_link import DaemonLink
from carpal.errors import refuse
from carpal.status import Reason


class PlannedEnds:
    """Drains each link before it is cut, and ends it when our certificate does."""

    def __init__(self, expires: Callable[[], datetime], age: float = 0.0) -> None:
        """`expires` says when the certificate shown to those who connect now runs out.

        `age` is how long a link may last in seconds; zero lets links last.
        """
        self._expires = expires
        self._age = age
        self._timers: dict[DaemonLink, list[asyncio.TimerHandle]] = {}

    def plan(self, link: DaemonLink) -> None:
        """A link began."""
        planned = drains.plan(
            datetime.now(UTC),
            theirs=link.identity.not_after,
            ours=self._expires(),
            age=self._age,
            chance=random.random(),  # noqa: S311 - jitter
        )
        later = asyncio.get_running_loop().call_later
        expired = refuse(Reason.CERTIFICATE_EXPIRED, "the brain's certificate expired")
        self._timers[link] = [later(planned.end, link.end, expired)]
        if planned.drain is not None:
            self._timers[link].append(later(planned.drain, link.drain, "the link gets old"))

    def forget(self, link: DaemonLink) -> None:
        """It ended."""
        for timer in self._timers.pop(link, ()):
            timer.cancel()
