"""How long a lease lasts: terms, renewals, releases."""

import asyncio
from datetime import timedelta

from carpal.errors import from_status
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must, refused, refused_ack
from sessiond.conformance.bench import TERM_SHORT, Bench
from sessiond.conformance.group import Group
from sessiond.conformance.streams import is_live

group = Group("leases")


async def _renew(bench: Bench, *leases: tuple[str, int]) -> list[types_pb2.RenewedLease]:
    refs = [types_pb2.LeaseRef(resource=resource, epoch=epoch) for resource, epoch in leases]
    return list((await bench.brain.RenewLease(pb.RenewLeaseRequest(leases=refs))).leases)


@group
async def terms(bench: Bench) -> None:
    """A term is 0.5 s to 60 s, and 10 s when unset."""
    made = await bench.session()
    for term, asked in ((0.5, 0.5), (60.0, 60.0), (10.0, None)):
        lease = (await bench.lease(made.session_id, term=asked)).lease
        left = lease.expires_in.ToTimedelta().total_seconds()
        must(term - bench.slack < left <= term, f"{left} s are left of {term}")
    for bad in (timedelta(microseconds=499_999), timedelta(seconds=60, microseconds=1)):
        request = pb.AcquireLeaseRequest(resource=f"session/{made.session_id}")
        request.term.FromTimedelta(bad)
        with refused(Reason.INVALID_FIELD):
            await bench.brain.AcquireLease(request)


@group
async def renewed(bench: Bench) -> None:
    """A lease that is renewed lives on beyond its term, under its epoch."""
    made = await bench.session()
    term = bench.slack
    lease = (await bench.lease(made.session_id, term=term)).lease
    began = bench.now()
    while bench.now() - began < 1.25 * term:
        (answer,) = await _renew(bench, (lease.resource, lease.epoch))
        must(not answer.HasField("status"), f"refused: {answer.status.message}")
        left = answer.expires_in.ToTimedelta().total_seconds()
        must(0 < left <= term, f"{left} s are left of {term}")
        await asyncio.sleep(0.1)  # the term itself is what is checked
    await bench.emit(made.session_id, bench.event("agent.message"), epoch=lease.epoch)


@group
async def renewed_together(bench: Bench) -> None:
    """Many leases are renewed in one call, each with its own answer, in the order asked."""
    made = await asyncio.gather(*(bench.session() for _ in range(4)))
    leases = [(await bench.lease(session.session_id)).lease for session in made]
    await bench.release(made[1].session_id, leases[1].epoch)
    other = (await bench.lease(made[3].session_id, stub=bench.brain)).lease
    unknown = f"session/{bench.fresh('sesn')}"
    asked = [(lease.resource, lease.epoch) for lease in leases] + [(unknown, 1)]
    answers = await _renew(bench, *asked)
    equal("the order", [answer.resource for answer in answers], [name for name, _ in asked])
    ok = [not answer.HasField("status") for answer in answers]
    equal("renewed", ok, [True, False, True, False, False])
    for answer in answers:
        if answer.HasField("status"):
            must(not is_live(_row(answer)), "a refused one has time left")
    refused_ack(answers[1].status, Reason.STALE_EPOCH)
    refused_ack(answers[3].status, Reason.STALE_EPOCH)
    must(other.epoch > leases[3].epoch, "the epoch is not higher")


@group
async def renewed_too_late(bench: Bench) -> None:
    """An expired lease is not renewed, also when nobody has taken it."""
    made = await bench.session()
    lease = (await bench.lease(made.session_id, term=TERM_SHORT)).lease
    await bench.expired(made.session_id)
    (answer,) = await _renew(bench, (lease.resource, lease.epoch))
    refused_ack(answer.status if answer.HasField("status") else None, Reason.STALE_EPOCH)


@group
async def renewed_by_another(bench: Bench) -> None:
    """A brain renews and releases only leases it holds."""
    made = await bench.session()
    lease = (await bench.lease(made.session_id, stub=bench.brain2)).lease
    (answer,) = await _renew(bench, (lease.resource, lease.epoch))
    must(answer.HasField("status"), "it was renewed")
    equal("reason", from_status(answer.status).reason, Reason.STALE_EPOCH)
    with refused(Reason.STALE_EPOCH):
        await bench.release(made.session_id, lease.epoch)
    must(is_live((await bench.info(made.session_id)).lease), "the lease has ended")


@group
async def released(bench: Bench) -> None:
    """A released lease is free at once, and the session says what was processed."""
    made = await bench.session(bench.events(3), wake=True)
    lease = (await bench.lease(made.session_id)).lease
    session = await bench.release(made.session_id, lease.epoch, processed=3)
    equal("processed", session.processed, 3)
    must(not is_live(session.lease), "the lease has time left")
    equal("holder", session.lease.holder, "")
    await bench.lease(made.session_id, stub=bench.brain2)


@group
async def released_again(bench: Bench) -> None:
    """Releasing again is the first answer, and changes nothing."""
    made = await bench.session(bench.events(3), wake=True)
    lease = (await bench.lease(made.session_id)).lease
    first = await bench.release(made.session_id, lease.epoch, processed=2)
    again = await bench.release(made.session_id, lease.epoch, processed=2)
    equal("again", again, first)


@group
async def released_stale(bench: Bench) -> None:
    """A release under an epoch that is not the newest is STALE_EPOCH and changes nothing."""
    made = await bench.session(bench.events(3), wake=True)
    old = (await bench.lease(made.session_id)).lease
    new = (await bench.lease(made.session_id)).lease
    with refused(Reason.STALE_EPOCH):
        await bench.release(made.session_id, old.epoch, processed=3)
    info = await bench.info(made.session_id)
    equal("processed", info.processed, 0)
    must(is_live(info.lease) and info.lease.epoch == new.epoch, "the lease has changed")


@group
async def released_too_late(bench: Bench) -> None:
    """A release of an expired lease is STALE_EPOCH and changes nothing."""
    made = await bench.session(bench.events(3), wake=True)
    lease = (await bench.lease(made.session_id, term=TERM_SHORT)).lease
    await bench.expired(made.session_id)
    with refused(Reason.STALE_EPOCH):
        await bench.release(made.session_id, lease.epoch, processed=3)
    equal("processed", (await bench.info(made.session_id)).processed, 0)


@group
async def processed_never_falls(bench: Bench) -> None:
    """What was processed stays processed, whatever a later driver says."""
    made = await bench.session(bench.events(3), wake=True)
    for processed in (2, 1):
        lease = (await bench.lease(made.session_id)).lease
        await bench.release(made.session_id, lease.epoch, processed=processed)
    equal("processed", (await bench.info(made.session_id)).processed, 2)


def _row(answer: types_pb2.RenewedLease) -> types_pb2.LeaseInfo:
    return types_pb2.LeaseInfo(expires_in=answer.expires_in)
