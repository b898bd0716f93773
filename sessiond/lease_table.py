"""The live leases, and who watches them: a picture kept in the event loop.

It follows the commits, as the board does, and knows when the next lease expires.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from sessiond.pending import Pending, Watchers
from sessiond.rows import LeaseRow, LeaseState

LeaseChanges = Pending[str, LeaseRow]


class LeaseTable:
    """Leases that are LIVE by their row."""

    def __init__(self) -> None:
        self._live: dict[str, LeaseRow] = {}
        self._heap: list[tuple[int, str, int]] = []
        """Expiry in steady nanoseconds, resource, epoch: one entry per epoch. It is early
        when the lease was renewed since, and is then put back."""
        self._watchers: Watchers[str, LeaseRow] = Watchers()

    def update(self, leases: Iterable[LeaseRow]) -> None:
        """Leases as a commit left them. A renewal is no news: watchers are not told."""
        for lease in leases:
            before = self._live.get(lease.resource)
            if lease.state is not LeaseState.LIVE:
                self._live.pop(lease.resource, None)
            else:
                self._live[lease.resource] = lease
                if before is None or before.epoch != lease.epoch:
                    heapq.heappush(self._heap, (lease.expires, lease.resource, lease.epoch))
            if before is None or msgspec.structs.replace(before, expires=lease.expires) != lease:
                self._watchers.tell(lease.resource, lease)

    def next_expiry(self) -> int | None:
        """When the next lease expires, in steady nanoseconds; None when there is none."""
        while self._heap:
            expires, resource, epoch = self._heap[0]
            lease = self._live.get(resource)
            if lease is None or lease.epoch != epoch:
                heapq.heappop(self._heap)
            elif lease.expires > expires:
                heapq.heapreplace(self._heap, (lease.expires, resource, epoch))
            else:
                return expires
        return None

    @contextmanager
    def watch(
        self, wants: Callable[[LeaseRow], bool]
    ) -> Iterator[tuple[list[LeaseRow], LeaseChanges]]:
        """The live leases that are wanted, and then every change to such."""
        with self._watchers.join(wants) as changes:
            yield [lease for lease in self._live.values() if wants(lease)], changes

    def close(self) -> None:
        """The server stops: watchers are told."""
        self._watchers.close()
