"""Placement: which daemon a hand goes to, and how long to wait for one."""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from brain.daemons.fleet import Fleet
from brain.hands.patience import Patience
from brain.offers import tools_of
from carpal.backoff import Backoff
from carpal.errors import BadInput, CarpalError, Unreachable, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

RETURN_LIMIT = 30.0
"""Seconds after which a daemon that went away is no longer waited for."""
START_LIMIT = 15.0
"""Seconds a brain waits for daemons after its own start: it may have been their last one."""

T = TypeVar("T")
Spec = dict[str, Any]
"""A hand as a session names it: type, config, placement."""


class Placement:
    """Finds daemons of one workspace for one hand."""

    def __init__(
        self,
        fleet: Fleet,
        workspace: str,
        spec: Spec,
        waiting: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`waiting` is told, once, why there is no daemon yet."""
        self._waiting = waiting
        self._fleet = fleet
        self._workspace = workspace
        self._spec = spec
        self._type = str(spec["type"])

    async def daemon(self, patience: float) -> str:
        """A daemon with room; waits up to `patience` seconds for one.

        Raises AT_CAPACITY or DAEMON_NOT_FOUND.
        """

        async def choose() -> str:
            return self._choose()

        return await self._wait(choose, patience)

    async def offer(self, patience: float) -> hand_pb2.HandTypeInfo:
        """What a daemon that fits says of the hand's type, full or not.

        INVALID_FIELD when all say what is no good.
        """

        async def ask() -> hand_pb2.HandTypeInfo:
            fitting = self._fitting()
            for daemon in fitting[:-1]:
                try:
                    return await self._describe(daemon)
                except BadInput as error:
                    log.warning(
                        "type is no good", extra={"daemon": daemon.daemon_id, "why": str(error)}
                    )
            return await self._describe(fitting[-1])

        return await self._wait(ask, patience)

    async def _describe(self, daemon: pb.DaemonInfo) -> hand_pb2.HandTypeInfo:
        told = await self._fleet.describe(daemon, self._type)
        tools_of(told)
        return told

    def _choose(self) -> str:
        # The directory does not say how full the others are now; they refuse when they are.
        free = [
            d
            for d in self._fitting()
            if not self._fleet.has(d.daemon_id) or d.capacity.hands < d.capacity.hands_max
        ]
        if not free:
            raise refuse(Reason.AT_CAPACITY, f"every daemon that offers {self._type!r} is full")
        here = [d for d in free if self._fleet.has(d.daemon_id)]
        # This brain's own links save a hop.
        return random.choice(here or free).daemon_id  # noqa: S311 - spreads load, guards nothing

    def _fitting(self) -> list[pb.DaemonInfo]:
        """Connected daemons that fit, those linked here first; DAEMON_NOT_FOUND without any."""
        known = self._fleet.daemons(self._workspace)
        if fits := [d for d in known if d.state == "connected" and self._fits(d)]:
            return sorted(fits, key=lambda d: not self._fleet.has(d.daemon_id))
        if drained := [d.daemon_id for d in known if d.state == "draining" and self._fits(d)]:
            raise refuse(
                Reason.DAEMON_NOT_FOUND,
                f"every daemon with a {self._type!r} hand that fits its placement is drained: "
                f"{', '.join(sorted(drained)[:5])}",
                action="let one take new hands again: `carpal fleet drain NAME --lift`",
            )
        raise refuse(
            Reason.DAEMON_NOT_FOUND,
            f"no connected daemon offers a {self._type!r} hand that fits its placement"
            f"{_said(self._spec.get('placement') or {})}; connected are {_listed(known)}",
            action="correct the hand, or connect a daemon: make a token with `carpal fleet token`",
        )

    async def _wait(self, ask: Callable[[], Awaitable[T]], patience: float) -> T:
        """Ask until it is answered, while waiting may help and is not over."""
        limit = Patience(patience)
        backoff = Backoff(0.1, 1.0)
        told = False
        while True:
            began = time.monotonic()
            try:
                return await ask()
            except CarpalError as error:
                if not self._may_help(error) or limit.over(began, time.monotonic()):
                    raise
                if not told:
                    told = True
                    self._waiting(error.message)
            await self._fleet.directory.wait_change(backoff.next())

    def _may_help(self, error: CarpalError) -> bool:
        """Whether to wait: for room, or for a daemon that was here a moment ago.

        Its brain died, or its link was cut, and it is on its way to another.
        """
        if error.reason is Reason.DAEMON_NOT_FOUND:
            if time.monotonic() < self._fleet.directory.since + START_LIMIT:
                return True
            since = time.monotonic() - RETURN_LIMIT
            rows = self._fleet.directory.daemons.values()
            lately = [row.info for row in rows if not row.live and row.learned > since]
            return any(d.workspace == self._workspace and self._fits(d) for d in lately)
        return isinstance(error, Unreachable) or error.reason is Reason.AT_CAPACITY

    def _fits(self, daemon: pb.DaemonInfo) -> bool:
        placement = self._spec.get("placement") or {}
        labels = placement.get("labels") or {}
        return (
            self._type in daemon.types
            and placement.get("daemon", daemon.daemon_id) == daemon.daemon_id
            and placement.get("pool", daemon.pool) == daemon.pool
            and all(daemon.labels.get(key) == value for key, value in labels.items())
        )


def _said(placement: Mapping[str, Any]) -> str:
    asked = [f"{key} {value}" for key, value in placement.items() if value]
    return f" ({', '.join(asked)[:200]})" if asked else ""


def _listed(daemons: Sequence[pb.DaemonInfo]) -> str:
    """Which there are and what they offer, a few of them."""
    connected = [each for each in daemons if each.state == "connected"]
    said = [f"{each.daemon_id} with {', '.join(each.types)[:200]}" for each in connected[:3]]
    if len(connected) > len(said):
        said.append(f"{len(connected) - len(said)} more")
    return "; ".join(said) or "none"
