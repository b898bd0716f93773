"""A brain's own lease: it is in the directory, and may hold links, while it lives."""

import asyncio
import logging
from collections.abc import Callable

from brain.leases import Lease, LeaseKeeper
from carpal.backoff import Backoff
from carpal.errors import CarpalError, Unreachable

log = logging.getLogger(__name__)


class Presence:
    """Keeps `brain/<name>`; takes it anew when it is lost."""

    def __init__(self, keeper: LeaseKeeper, name: str) -> None:
        self._keeper = keeper
        self._resource = f"brain/{name}"
        self.attributes: dict[str, str] = {}
        """What the directory says of this brain: `enroll`, where machines enrol."""
        self._lease: Lease | None = None

    def left(self) -> float:
        """Seconds this brain may still act for; zero without a lease."""
        return self._lease.left() if self._lease is not None else 0.0

    async def take(self) -> Lease:
        """The lease, waiting for sessiond as long as it takes."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                self._lease, _ = await self._keeper.acquire(
                    self._resource, takeover=True, attributes=self.attributes
                )
            except CarpalError as error:
                if not isinstance(error, Unreachable):
                    raise
                log.info("waiting for sessiond", extra={"error": str(error)})
                await asyncio.sleep(backoff.next())
            else:
                return self._lease

    async def run(self, lost: Callable[[], None]) -> None:
        """Stay present; calls `lost` each time the lease was lost."""
        while True:
            lease = self._lease or await self.take()
            await lease.lost.wait()
            log.warning("this brain's lease is lost")
            self._lease = None
            lost()

    async def leave(self) -> None:
        """Give the lease up, so that others know at once."""
        if self._lease is not None:
            await self._keeper.release(self._lease)
