"""Leases end here no later than at sessiond, and are renewed together."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from brain.session.leases import MARGIN, TOGETHER, Lease, LeaseKeeper, follow_leases, is_live
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import session_pb2
from sessiond.service.leases import RENEWALS
from tests.brain.stage import WAIT, create
from tests.pace import SCALE
from tests.sessiond.serving import Serving

TERM = 1.5 * SCALE


def answer(seconds: float) -> session_pb2.AcquireLeaseResponse:
    """A lease of so many seconds."""
    made = session_pb2.AcquireLeaseResponse()
    made.lease.expires_in.FromMilliseconds(int(seconds * 1000))
    return made


def test_a_deadline_counts_from_before_the_request_and_ends_a_margin_earlier() -> None:
    lease = Lease(answer(100.0), asked=time.monotonic() - 50.0)
    assert lease.left() == pytest.approx(50.0 - 100.0 * MARGIN, abs=1.0)
    lease.lost.set()
    assert lease.left() == 0.0


@asynccontextmanager
async def keeping(stub: Any) -> AsyncIterator[LeaseKeeper]:
    """A keeper that renews."""
    keeper = LeaseKeeper(stub, TERM)
    async with renewing(keeper):
        yield keeper


@asynccontextmanager
async def renewing(keeper: LeaseKeeper) -> AsyncIterator[None]:
    """It renews while the block lasts."""
    running = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(WAIT):
            yield
    finally:
        running.cancel()
        await asyncio.wait({running})


class Renewals:
    """A stub that counts renewals, and can be made to fail or to hang."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self.sizes: list[int] = []
        self.renewed = asyncio.Condition()
        self.broken = False
        self.refused = ""
        """A lease whose whole batch fails."""
        self.refusals = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stub, name)

    async def RenewLease(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as the stub
        """See the session service."""
        if self.broken:
            await asyncio.sleep(timeout)
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata()
            )
        if self.refused in [lease.resource for lease in request.leases]:
            self.refusals += 1
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()
            )
        told = await self._stub.RenewLease(request, timeout=timeout)
        async with self.renewed:
            self.sizes.append(len(request.leases))
            self.renewed.notify_all()
        return told


async def test_what_fits_is_renewed_in_one_call(sessions: Serving) -> None:
    for name in ("sesn_1", "sesn_2"):
        await create(sessions, name)
    stub = Renewals(await sessions.brain())
    async with keeping(stub) as keeper:
        leases = [(await keeper.acquire(f"session/{n}"))[0] for n in ("sesn_1", "sesn_2")]
        async with stub.renewed:
            await stub.renewed.wait_for(lambda: stub.sizes.count(2) >= 4)
        assert all(lease.left() > TERM / 3 for lease in leases)
        await keeper.release(leases[0])
        async with stub.renewed:
            await stub.renewed.wait_for(lambda: stub.sizes[-1] == 1)
    assert leases[0].lost.is_set()
    assert not leases[1].lost.is_set()


async def test_more_leases_than_one_call_takes_are_all_renewed(sessions: Serving) -> None:
    stub: Any = Renewals(await sessions.brain())
    keeper = LeaseKeeper(stub, 20 * TERM)  # how long taking so many lasts is not what is tested
    taking = (
        keeper.acquire(f"daemon/d{n}", takeover=True, workspace="w") for n in range(RENEWALS + 1)
    )
    leases = [lease for lease, _ in await asyncio.gather(*taking)]
    keeper.term = TERM
    async with renewing(keeper), stub.renewed:
        await stub.renewed.wait_for(lambda: sum(stub.sizes) >= 2 * len(leases))
    assert not any(lease.lost.is_set() for lease in leases)
    assert max(stub.sizes) <= TOGETHER


async def test_a_batch_that_is_not_renewed_costs_no_other_its_leases(sessions: Serving) -> None:
    stub: Any = Renewals(await sessions.brain())
    keeper = LeaseKeeper(stub, 20 * TERM)
    taking = (keeper.acquire(f"daemon/d{n}", takeover=True, workspace="w") for n in range(TOGETHER))
    first = [lease for lease, _ in await asyncio.gather(*taking)]
    other, _ = await keeper.acquire("daemon/other", takeover=True, workspace="w")
    stub.refused = first[0].resource
    keeper.term = TERM
    async with renewing(keeper), stub.renewed:
        await stub.renewed.wait_for(lambda: stub.refusals >= 2 and stub.sizes.count(1) >= 3)
        assert set(stub.sizes) == {1}
        stub.refused = ""
        await stub.renewed.wait_for(lambda: TOGETHER in stub.sizes)
    assert not any(lease.lost.is_set() for lease in [other, *first])


async def test_a_lease_that_cannot_be_renewed_is_lost_before_it_ends_at_sessiond(
    sessions: Serving,
) -> None:
    await create(sessions)
    stub = Renewals(await sessions.brain())
    stub.broken = True
    async with keeping(stub) as keeper:
        began = time.monotonic()
        lease, _ = await keeper.acquire("session/sesn_1")
        await lease.lost.wait()
        # It may be noticed at the next look, but no effect starts in between.
        assert time.monotonic() - began >= TERM * (1 - MARGIN) - 0.1
    assert lease.left() == 0.0


async def test_a_lease_another_took_is_lost_at_the_next_renewal(sessions: Serving) -> None:
    await create(sessions)
    async with keeping(await sessions.brain()) as keeper:
        lease, _ = await keeper.acquire("session/sesn_1")
        await sessions.advance(TERM + 1.0)
        await sessions.lease("sesn_1", "brain-2")
        await lease.lost.wait()


async def test_what_is_held_is_refused_to_another(sessions: Serving) -> None:
    await create(sessions)
    await sessions.lease("sesn_1", "brain-2")
    with pytest.raises(CarpalError) as caught:
        await LeaseKeeper(await sessions.brain(), TERM).acquire("session/sesn_1")
    assert caught.value.reason is Reason.LEASE_HELD


async def test_a_release_that_is_refused_raises_nothing(sessions: Serving) -> None:
    await create(sessions)
    keeper = LeaseKeeper(await sessions.brain(), TERM)
    lease, _ = await keeper.acquire("session/sesn_1")
    await sessions.advance(TERM + 1.0)
    await sessions.lease("sesn_1", "brain-2")
    await keeper.release(lease)
    assert lease.lost.is_set()


async def test_leases_are_followed_from_a_snapshot_on(sessions: Serving) -> None:
    await create(sessions)
    stub = await sessions.brain()
    keeper = LeaseKeeper(stub, TERM)
    answers = follow_leases(stub, "session/")
    async with asyncio.timeout(WAIT):
        first = await anext(answers)
        assert (first.snapshot, list(first.leases)) == (True, [])
        lease, _ = await keeper.acquire("session/sesn_1")
        assert [is_live(row) for row in (await anext(answers)).leases] == [True]
        await keeper.release(lease)
        assert [is_live(row) for row in (await anext(answers)).leases] == [False]
    await answers.aclose()


async def test_a_snapshot_in_several_messages_is_followed_in_one_piece(sessions: Serving) -> None:
    stub = await sessions.brain()
    keeper = LeaseKeeper(stub, TERM)
    for n in range(300):
        await keeper.acquire(
            f"daemon/d{n}", takeover=True, workspace="w", attributes={"labels": "x" * 4000}
        )
    answers = follow_leases(stub, "daemon/")
    async with asyncio.timeout(WAIT):
        first = await anext(answers)
        assert (first.snapshot, first.more, len(first.leases)) == (True, False, 300)
        await keeper.acquire("daemon/d300", takeover=True, workspace="w")
        change = await anext(answers)
        assert (change.snapshot, [row.resource for row in change.leases]) == (
            False,
            ["daemon/d300"],
        )
    await answers.aclose()
