"""The ends of a link that are known when it begins: its drain, and our certificate's end."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from brain.daemons import drains
from brain.daemons.daemon_link import DaemonLink
from carpal.errors import refuse
from carpal.identity import Identity
from carpal.status import Reason

_LOOK = 10.0
"""Seconds between looks at the clock: a timer stands still while the machine sleeps."""


@dataclass(slots=True)
class _Planned:
    began: datetime
    plan: drains.Plan
    timer: asyncio.TimerHandle | None = None


class PlannedEnds:
    """Drains each link before it is cut, and ends it when our certificate does."""

    def __init__(
        self,
        shown: Callable[[], Identity],
        age: float = 0.0,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        look: float = _LOOK,
    ) -> None:
        """`shown` is whose certificate those see who connect now.

        `age` is how long a link may last in seconds; zero lets links last. `look` is the seconds
        between looks at the clock `now`.
        """
        self._shown = shown
        self._age = age
        self._now = now
        self._look_every = look
        self._links: dict[DaemonLink, _Planned] = {}

    def plan(self, link: DaemonLink) -> None:
        """A link began."""
        began = self._now()
        plan = drains.plan(
            began,
            theirs=link.identity,
            ours=self._shown(),
            age=self._age,
            chance=random.random(),  # noqa: S311 - jitter
        )
        self._links[link] = _Planned(began, plan)
        self._look(link)

    def forget(self, link: DaemonLink) -> None:
        """It ended."""
        planned = self._links.pop(link, None)
        if planned is not None and planned.timer is not None:
            planned.timer.cancel()

    def _look(self, link: DaemonLink) -> None:
        planned = self._links[link]
        passed = (self._now() - planned.began).total_seconds()
        drain, end = planned.plan.drain, planned.plan.end
        if end <= passed:
            link.end(refuse(Reason.CERTIFICATE_EXPIRED, "the brain's certificate expired"))
            return
        if drain is not None and drain <= passed:
            link.drain("the link gets old")  # says it once
            drain = None
        wait = min(self._look_every, end - passed, *(() if drain is None else (drain - passed,)))
        planned.timer = asyncio.get_running_loop().call_later(wait, self._look, link)
