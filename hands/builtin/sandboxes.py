"""The sandboxes that this machine can make for a type's hands, and the limits kept in one.

Found out by making one, and known from then on; not known is no answer, and asked again.
"""

import asyncio
import os

from hands.isolation import bwrap, cgroups, probe

PROCESSES = 1024
"""Processes and threads a hand has at most where nothing else is asked for: a fork bomb's end."""


class Sandboxes:
    """What is known of them."""

    def __init__(self, why_not: str | None = None) -> None:
        """`why_not`, when it is known beforehand that there is none."""
        self._why = why_not
        self.bases: dict[str, cgroups.Base] = {}
        """Where hands' control groups are made, once that is known."""

    @property
    def there(self) -> bool:
        """It is known that they can be made."""
        return self._why == ""

    async def why_not(self) -> str:
        """Why there is none; empty when there is. Raises `probe.NotKnown`."""
        if self._why is not None:
            return self._why
        why, self.bases = await asyncio.to_thread(_look)
        self._why = why
        return why

    def enforceable(self) -> set[str]:
        """Limits that are kept here."""
        kept = {name for name, controller in cgroups.LIMITS.items() if controller in self.bases}
        return kept | ({"disk_bytes"} if self.there and os.geteuid() == 0 else set())

    def not_enforced(self) -> tuple[str, ...]:
        """What a hand in one lacks all the same."""
        lacks = []
        if os.geteuid() != 0:
            lacks.append("runs as the daemon's user: it has no user of its own")
        if "pids" not in self.bases:
            lacks.append("the number of its processes is not limited")
        return tuple(lacks)


def _look() -> tuple[str, dict[str, cgroups.Base]]:
    """Why no sandbox can be made, and where groups can be."""
    why = probe.problem()
    if not why:
        bwrap.compile_code()
    found = {} if why else cgroups.bases()
    cgroups.sweep(found)
    return why, found
