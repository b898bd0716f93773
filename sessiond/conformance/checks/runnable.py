"""What is offered to brains, and when."""

import asyncio

from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must
from sessiond.conformance.bench import TERM_SHORT, Bench
from sessiond.conformance.group import Group
from sessiond.conformance.streams import Offers

group = Group("runnable")


async def _woken(bench: Bench, workspace: str) -> str:
    """A session with one event that asks for work."""
    made = await bench.session(bench.events(1), wake=True, workspace=workspace)
    return made.session_id


async def _after_marker(bench: Bench, workspace: str, offers: Offers) -> set[str]:
    """What was offered by the time that a session woken just now is."""
    marker = await _woken(bench, workspace)
    await offers.until(marker)
    return set(offers.seen) - {marker}


@group
async def snapshot(bench: Bench) -> None:
    """A session created with a wake is in the snapshot of a new watch."""
    workspace = bench.fresh("check")
    id = await _woken(bench, workspace)
    offer = await bench.runnable(workspace).until(id)
    equal("workspace", offer.workspace, workspace)
    equal("wake, processed, attempts", (offer.wake, offer.processed, offer.attempts), (1, 0, 0))


@group
async def woken(bench: Bench) -> None:
    """A session is offered when an event wakes it, unary or streamed, and not before."""
    workspace = bench.fresh("check")
    one = await bench.session(bench.events(1), workspace=workspace)
    two = await bench.session(bench.events(1), workspace=workspace)
    offers = bench.runnable(workspace)
    equal("offered before", await _after_marker(bench, workspace, offers), set())
    await bench.emit(one.session_id, bench.event(), wake=True)
    equal("wake", (await offers.until(one.session_id)).wake, 2)
    lane = bench.lane()
    await lane.send(two.session_id, *bench.events(2), wake=True)
    await lane.acked()
    equal("wake", (await offers.until(two.session_id)).wake, 3)


@group
async def not_while_driven(bench: Bench) -> None:
    """A session with a live lease is not offered, woken or not."""
    workspace = bench.fresh("check")
    id = await _woken(bench, workspace)
    await bench.lease(id)
    await bench.emit(id, bench.event(), wake=True)
    offered = await _after_marker(bench, workspace, bench.runnable(workspace))
    equal("offered", offered, set())


@group
async def done_when_processed(bench: Bench) -> None:
    """A session whose wake was processed is not offered until the next wake."""
    workspace = bench.fresh("check")
    id = await _woken(bench, workspace)
    lease = (await bench.lease(id)).lease
    await bench.release(id, lease.epoch, processed=1)
    offers = bench.runnable(workspace)
    equal("offered", await _after_marker(bench, workspace, offers), set())
    await bench.emit(id, bench.event(), wake=True)
    offer = await offers.until(id)
    equal("wake, processed", (offer.wake, offer.processed), (2, 1))


@group
async def woken_while_driven(bench: Bench) -> None:
    """A wake that came while a driver was at work is offered once that lease is released."""
    workspace = bench.fresh("check")
    id = await _woken(bench, workspace)
    lease = (await bench.lease(id)).lease
    await bench.emit(id, bench.event(), wake=True)
    offers = bench.runnable(workspace)
    equal("offered while driven", await _after_marker(bench, workspace, offers), set())
    await bench.release(id, lease.epoch, processed=1)
    offer = await offers.until(id)
    equal("wake, processed", (offer.wake, offer.processed), (2, 1))


@group
async def after_expiry(bench: Bench) -> None:
    """A session whose driver vanished is offered again when its lease expires."""
    workspace = bench.fresh("check")
    id = await _woken(bench, workspace)
    offers = bench.runnable(workspace)
    await offers.until(id)
    before = bench.now()
    await bench.lease(id, term=TERM_SHORT)
    after = bench.now()
    await offers.until(id)
    must(bench.now() - before >= TERM_SHORT, "it was offered before the lease expired")
    late = bench.now() - after - TERM_SHORT
    must(late < bench.slack, f"it was offered {late:.1f} s late")


@group
async def wakes_on_time(bench: Bench) -> None:
    """A sleeping session is offered at its wake_at, with nothing left to process."""
    workspace = bench.fresh("check")
    id = await _woken(bench, workspace)
    lease = (await bench.lease(id)).lease
    before = bench.now()
    now = (await bench.emit(id, bench.event("agent.message"), epoch=lease.epoch)).time
    after = bench.now()
    request = _sleep(id, lease.epoch, processed=2, at_ns=now.ToNanoseconds() + 10**9)
    session = (await bench.brain.ReleaseLease(request)).session
    equal("wake_at", session.wake_at, request.wake_at)
    offers = bench.runnable(workspace)
    offered = await _after_marker(bench, workspace, offers)
    if bench.now() - before < 1.0:  # a slow service may have come to its time by now
        equal("offered at once", offered, set())
    offer = offers.seen.get(id) or await offers.until(id)
    must(bench.now() - before >= 1.0, "it was offered too early")
    must(bench.now() - after < 1.0 + bench.slack, f"{bench.now() - after - 1.0:.1f} s late")
    must(offer.processed >= offer.wake, "there is a wake to process")


@group
async def woken_from_sleep(bench: Bench) -> None:
    """A wake offers a sleeping session before its time, and a new driver may sleep it no more."""
    workspace = bench.fresh("check")
    id = await _woken(bench, workspace)
    lease = (await bench.lease(id)).lease
    now = (await bench.emit(id, bench.event("agent.message"), epoch=lease.epoch)).time
    hour = now.ToNanoseconds() + 3600 * 10**9
    await bench.brain.ReleaseLease(_sleep(id, lease.epoch, processed=2, at_ns=hour))
    offers = bench.runnable(workspace)
    await bench.emit(id, bench.event(), wake=True)
    await offers.until(id)
    lease = (await bench.lease(id)).lease
    session = await bench.release(id, lease.epoch, processed=3)
    must(not session.HasField("wake_at"), "it still wants to be woken")


@group
async def archived(bench: Bench) -> None:
    """An archived session is not offered, although a wake is left."""
    made = await bench.session(bench.events(1), wake=True)
    offers = bench.runnable(bench.workspace)
    await offers.until(made.session_id)
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=made.session_id))
    later = bench.runnable(bench.workspace)
    marker = await bench.session(bench.events(1), wake=True)
    await later.until(marker.session_id)
    must(made.session_id not in later.seen, "it is offered")
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=marker.session_id))


@group
async def workspaces_asked_for(bench: Bench) -> None:
    """A watch offers the sessions of the workspaces it names; of every one when it names none."""
    one, two, three = (bench.fresh("check") for _ in range(3))
    ids = [await _woken(bench, workspace) for workspace in (one, two, three)]
    offers = bench.runnable(one, two)
    await offers.until_all(ids[:2])
    await _woken(bench, three)
    must(ids[0] in await _after_marker(bench, one, offers), "the first is not offered")
    must({offer.workspace for offer in offers.seen.values()} == {one, two}, "it offers others")
    await bench.runnable().until_all(ids)


@group
async def none_is_lost(bench: Bench) -> None:
    """A watch that is not read loses no offer; what is told is merged."""
    workspace = bench.fresh("check")
    offers = bench.runnable(workspace)
    await _after_marker(bench, workspace, offers)
    ids = await asyncio.gather(*(_woken(bench, workspace) for _ in range(200)))
    await asyncio.gather(*(bench.emit(id, bench.event(), wake=True) for id in ids))
    newest: dict[str, types_pb2.RunnableSession] = offers.seen
    await offers.until_all(ids)
    while any(newest[id].wake != 2 for id in ids):
        await offers.until(next(id for id in ids if newest[id].wake != 2))


def _sleep(id: str, epoch: int, *, processed: int, at_ns: int) -> pb.ReleaseLeaseRequest:
    request = pb.ReleaseLeaseRequest(resource=f"session/{id}", epoch=epoch, processed=processed)
    request.wake_at.FromNanoseconds(at_ns)
    return request
