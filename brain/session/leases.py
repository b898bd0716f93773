"""Leases a brain holds: renewed together, and known to be lost in time.

A deadline is counted on this machine's monotonic clock from before the
request that granted it, so it never ends later than sessiond's own. What is
held through a lease stops `MARGIN` before that.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from carpal.backoff import Backoff
from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

MARGIN = 0.1
"""Share of a term before its end at which a lease counts as lost."""
TOGETHER = 250
"""Leases renewed in one call: few enough that neither end's loop stands still over them."""


class Lease:
    """One lease, until it is lost or given up."""

    def __init__(self, answer: session_pb2.AcquireLeaseResponse, asked: float) -> None:
        self.resource = answer.lease.resource
        self.epoch = answer.lease.epoch
        self.ticket: types_pb2.SignedBytes = answer.ticket
        self.lost = asyncio.Event()
        self.term = answer.lease.expires_in.ToMilliseconds() / 1000
        self._deadline = asked + self.term

    def left(self) -> float:
        """Seconds in which effects may start; zero or less once lost."""
        if self.lost.is_set():
            return 0.0
        return self._deadline - self.term * MARGIN - time.monotonic()

    def extend(self, asked: float, seconds: float) -> None:
        """It was renewed by a request sent at `asked`."""
        self._deadline = asked + seconds


@dataclass(frozen=True)
class Log:
    """What a session's lease came with of its log, as it was in that instant."""

    after: int
    """Where `events` begin."""
    events: Sequence[types_pb2.Event] | None
    """All above `after`, up to the head; None when they are too many."""
    head: types_pb2.ChainHead
    redacted: int
    """How many events up to the head are redacted."""


class LeaseKeeper:
    """Acquires leases and renews all that are held, together, every third of a term."""

    def __init__(self, stub: "session_pb2_grpc.SessionAsyncStub", term: float) -> None:
        """`term` is in seconds."""
        self._stub = stub
        self.address = ""
        """Where this brain is dialled; set once it is known."""
        self.term = term
        self._held: dict[str, Lease] = {}

    async def acquire(
        self,
        resource: str,
        *,
        takeover: bool = False,
        workspace: str = "",
        attributes: dict[str, str] | None = None,
    ) -> tuple[Lease, types_pb2.SessionInfo]:
        """Take a lease; for a session, also what it was in that instant.

        Of two of one resource the one with the lower epoch counts as lost.
        """
        request = session_pb2.AcquireLeaseRequest(
            resource=resource,
            address=self.address,
            takeover=takeover,
            workspace=workspace,
            attributes=attributes or {},
        )
        lease, answer = await self._ask(request)
        return lease, answer.session

    async def acquire_session(
        self, session_id: str, after: int
    ) -> tuple[Lease, types_pb2.SessionInfo, Log]:
        """Take a session's lease, with its log above a position, if that is short."""
        request = session_pb2.AcquireLeaseRequest(
            resource=f"session/{session_id}", address=self.address, events_after=after
        )
        lease, answer = await self._ask(request)
        events = answer.events if answer.events_whole else None
        return lease, answer.session, Log(after, events, answer.session.head, answer.redacted)

    async def _ask(
        self, request: session_pb2.AcquireLeaseRequest
    ) -> tuple[Lease, session_pb2.AcquireLeaseResponse]:
        request.term.FromMilliseconds(int(self.term * 1000))
        asked = time.monotonic()
        with rpc_errors("sessiond"):
            answer = await self._stub.AcquireLease(request, timeout=self.term)
        lease = Lease(answer, asked)
        self._hold(lease)
        return lease, answer

    async def release(
        self,
        lease: Lease,
        *,
        processed: int = 0,
        wake_in: float | None = None,
        failure: str = "",
        failed: tuple[str, str] = ("", ""),
        attributes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Give a lease up; saying so is best effort, since it expires anyway.

        `failed`: the layer that did, and the cause. `attributes` are added to the lease's.
        """
        self.drop(lease)
        request = session_pb2.ReleaseLeaseRequest(
            resource=lease.resource,
            epoch=lease.epoch,
            processed=processed,
            failure=failure,
            failure_layer=failed[0],
            failure_cause=failed[1],
            attributes=attributes,
        )
        if wake_in is not None:
            request.wake_at.FromMilliseconds(int((time.time() + wake_in) * 1000))
        try:
            with rpc_errors("sessiond"):
                await self._stub.ReleaseLease(request, timeout=self.term)
        except CarpalError as error:
            log.info("release refused", extra={"lease": lease.resource, "error": str(error)})

    def follow(self, prefix: str) -> AsyncGenerator[session_pb2.WatchLeasesResponse, None]:
        """The leases under a prefix, as `follow_leases` gives them."""
        return follow_leases(self._stub, prefix)

    def _hold(self, lease: Lease) -> None:
        """Renew it, unless one asked for at the same time is newer; the older counts as lost."""
        held = self._held.get(lease.resource)
        newest = lease if held is None or held.epoch < lease.epoch else held
        for each in (held, lease):
            if each is not None and each is not newest:
                each.lost.set()
        self._held[lease.resource] = newest

    def drop(self, lease: Lease) -> None:
        """Stop renewing it and count it as lost."""
        lease.lost.set()
        if self._held.get(lease.resource) is lease:
            del self._held[lease.resource]

    async def run(self) -> None:
        """Renew what is held; runs until cancelled."""
        while True:
            began = time.monotonic()
            held = list(self._held.values())
            batches = [held[at : at + TOGETHER] for at in range(0, len(held), TOGETHER)]
            await asyncio.gather(*map(self._renew, batches))
            for lease in list(self._held.values()):
                if lease.left() <= 0:
                    log.warning("lease lost", extra={"lease": lease.resource})
                    self.drop(lease)
            # By the clock, not after each answer: one that stalls must not cost the term.
            await asyncio.sleep(max(0.0, began + self.term / 3 - time.monotonic()))

    async def _renew(self, held: list[Lease]) -> None:
        refs = [types_pb2.LeaseRef(resource=h.resource, epoch=h.epoch) for h in held]
        asked = time.monotonic()
        try:
            with rpc_errors("sessiond"):
                answer = await self._stub.RenewLease(
                    session_pb2.RenewLeaseRequest(leases=refs), timeout=self.term / 3
                )
        except CarpalError as error:
            log.warning("leases not renewed", extra={"leases": len(held), "error": str(error)})
            return
        for lease, renewed in zip(held, answer.leases, strict=True):
            if renewed.HasField("status"):
                log.warning("lease refused", extra={"lease": lease.resource})
                self.drop(lease)
            else:
                lease.extend(asked, renewed.expires_in.ToMilliseconds() / 1000)


async def follow_leases(
    stub: "session_pb2_grpc.SessionAsyncStub", prefix: str
) -> AsyncGenerator[session_pb2.WatchLeasesResponse, None]:
    """Snapshots, each in one piece, and changes of the leases under a prefix.

    For ever, through reconnects.
    """
    backoff = Backoff(0.1, 2.0)
    while True:
        stream = stub.WatchLeases(session_pb2.WatchLeasesRequest(prefix=prefix))
        begun = session_pb2.WatchLeasesResponse()
        """What came of a snapshot that goes on."""
        try:
            with rpc_errors("sessiond"):
                async for answer in stream:
                    backoff.works()
                    begun.MergeFrom(answer)
                    if not answer.more:
                        begun.more = False
                        yield begun
                        begun = session_pb2.WatchLeasesResponse()
        except CarpalError as error:
            log.warning("leases not followed", extra={"prefix": prefix, "error": str(error)})
        finally:
            stream.cancel()
        await asyncio.sleep(backoff.next())


def is_live(lease: types_pb2.LeaseInfo) -> bool:
    """Whether a row says that somebody holds it."""
    return lease.expires_in.ToNanoseconds() > 0
