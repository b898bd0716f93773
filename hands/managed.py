"""The daemon and the service manager that runs it: ready, how it stands, and that it still turns.

It is ready once its settings and its identity are good and it has taken up its hands, not when a
brain answers: a machine must start, and its daemon not be restarted, while a brain is away. The
watchdog is fed by the event loop that does the work: one that stands still serves nobody
(docs/adr/0013-heartbeats.md), and is restarted; its hands go on meanwhile.
"""

import asyncio

from carpal.notify import READY, STOPPING, WATCHDOG, Notify
from hands.local.status import Standing, text

_LOOK = 5.0
"""Seconds between looks at how it stands, at most."""
_FEEDS = 3
"""Times that the watchdog is fed within its limit: one may come late."""


class Managed:
    """What the manager is told."""

    def __init__(self, notify: Notify, standing: Standing) -> None:
        self._notify = notify
        self._standing = standing
        self._said = ""

    def ready(self) -> None:
        """It takes orders."""
        self._notify.tell(READY)
        self._say()

    def stopping(self, why: str) -> None:
        """It ends."""
        self._notify.tell(STOPPING)
        self._notify.status(why)

    def reloading(self) -> None:
        """It reads its settings anew; `ready` follows."""
        self._notify.reloading()

    async def run(self) -> None:
        """Feed the watchdog and say how it stands, until cancelled."""
        watchdog = self._notify.watchdog
        pause = min(_LOOK, watchdog / _FEEDS) if watchdog else _LOOK
        while True:
            if watchdog:
                self._notify.tell(WATCHDOG)
            self._say()
            await asyncio.sleep(pause)

    def _say(self) -> None:
        said = text(self._standing.row())
        if said != self._said:
            self._notify.status(said)
            self._said = said
