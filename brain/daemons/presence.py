"""A brain's own lease: it is in the directory, and may hold links, while it lives."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from brain.session.leases import Lease, LeaseKeeper, is_live
from carpal.backoff import Backoff
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.status import Reason

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
                if not isinstance(error, Unreachable) and error.reason is not Reason.STORE_FULL:
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
            await self._check_alone(lease.epoch)

    async def _check_alone(self, epoch: int) -> None:
        """LEASE_HELD when another process took the name; it would be taken back for ever."""
        async with aclosing(self._keeper.follow(self._resource)) as answers:
            async for answer in answers:
                for lease in answer.leases:
                    if is_live(lease) and lease.epoch > epoch:
                        raise refuse(
                            Reason.LEASE_HELD,
                            f"another process runs as {self._resource}, at {lease.address}",
                            action="give each brain a name and an identity of its own",
                        )
                return

    async def leave(self) -> None:
        """Give the lease up, so that others know at once."""
        if self._lease is not None:
            await self._keeper.release(self._lease)
