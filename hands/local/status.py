"""How a daemon stands: what its local socket tells, and how that reads."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from carpal import __version__
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.tls import Shown
from hands.counts import Counts, LoopLag
from hands.inventory import Inventory

_LINKED, _NOT_LINKED = "linked", "not linked"


@dataclass
class LinkStatus:
    """The daemon's link as it is now: to which brain, since when, and why not if not."""

    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the link that counts was welcomed, or when there was none any more."""
    brain: str = ""
    """The name of the brain linked to."""
    address: str = ""
    """Where that was dialled, `host:port`; empty without a link."""
    why: CarpalError = field(default_factory=lambda: _not_yet("it starts"))
    """Why there is none, while there is none."""
    links: int = 0
    """Links that a brain welcomed."""
    reconnects: int = 0
    """Those that were made when there was none any more."""

    @property
    def is_linked(self) -> bool:
        """Whether a brain welcomed the daemon, on a link that has not ended."""
        return bool(self.address)

    def linked(self, brain: str, address: str) -> None:
        """A brain welcomed it; a link that takes another's place counts from then on too."""
        if self.links and not self.is_linked:
            self.reconnects += 1
        self.links += 1
        self.since, self.brain, self.address = datetime.now(UTC), brain, address

    def doing(self, what: str) -> None:
        """There is no link as it does something else first."""
        self.not_linked(_not_yet(what))

    def not_linked(self, why: CarpalError) -> None:
        """The link ended, or could not be made."""
        if self.is_linked:
            self.since, self.brain, self.address = datetime.now(UTC), "", ""
        self.why = why

    def row(self) -> dict[str, Any]:
        """What there is to tell of it."""
        refused = None if self.is_linked else self.why
        return {
            "state": _LINKED if self.is_linked else _NOT_LINKED,
            "since": _utc(self.since),
            "brain": self.brain or None,
            "address": self.address or None,
            "reason": refused.reason.value if refused else None,
            "why": refused.message if refused else None,
            "action": refused.action if refused else None,
        }


class Standing:
    """A daemon from its start on, before it is anybody too."""

    def __init__(self, hands_max: int, settings: Path | None = None) -> None:
        """`settings` is the file that it goes by, if any."""
        self.link = LinkStatus()
        self.hands_max = hands_max
        self.settings = settings
        self.counts = Counts()
        self.lag = LoopLag()
        self.started = time.time()
        """In seconds since 1970."""
        self.inventory: Inventory | None = None
        """Its hands, once it has them."""
        self._name = ""
        self._shown: Callable[[], Shown] | None = None

    def known(self, name: str, inventory: Inventory, shown: Callable[[], Shown]) -> None:
        """It is that daemon, has those hands, and dials with the identity that `shown` gives."""
        self._name, self.inventory, self._shown = name, inventory, shown
        self.link.doing("it dials")

    def row(self) -> dict[str, Any]:
        """It as `carpal hand status --json` gives it."""
        inventory = self.inventory
        return {
            "daemon_id": self._name or None,
            **self.link.row(),
            "types": sorted(inventory.types) if inventory else [],
            "hands": inventory.count if inventory else 0,
            "hands_max": self.hands_max,
            "draining": inventory.draining if inventory else False,
            "certificate_expires": self._expires(),
            "version": __version__,
            "pid": os.getpid(),
            "settings": str(self.settings) if self.settings else None,
        }

    def certificate_left(self) -> float | None:
        """Seconds until the end of its certificate, below 0 after it; None when it has none."""
        end = self._not_after()
        return None if end is None else (end - datetime.now(UTC)).total_seconds()

    def _expires(self) -> str | None:
        end = self._not_after()
        return None if end is None else _utc(end)

    def _not_after(self) -> datetime | None:
        try:
            return self._shown().identity().not_after if self._shown else None
        except (CarpalError, OSError):
            return None  # why it cannot be read is why there is no link, which says it


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _not_yet(what: str) -> CarpalError:
    return refuse(Reason.UNREACHABLE, what, action="wait a moment")


def is_linked(row: Mapping[str, Any]) -> bool:
    """Whether a row tells of a link."""
    return bool(row["state"] == _LINKED)


def text(row: Mapping[str, Any]) -> str:
    """A row for people, in one line."""
    who = f"daemon {row['daemon_id'] or 'without an identity'}"
    if is_linked(row):
        room = f"{row['hands']} of {row['hands_max']} hands"
        drained = ", takes no new ones" if row["draining"] else ""
        at = f"linked to {row['brain']} at {row['address']} since {row['since']}"
        return f"{who}: {at}; {room}{drained}"
    return f"{who}: not linked since {row['since']}: {row['why']}: {row['action']}"
