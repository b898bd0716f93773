"""Forks share a prefix with their source, and nothing else."""

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.checks.chain import verify
from sessiond.conformance.group import Group

group = Group("forks")


async def fork(bench: Bench, source: str, position: int) -> types_pb2.SessionInfo:
    """A fork under a fresh id, by the operator."""
    request = pb.ForkSessionRequest(
        source_session_id=source, position=position, session_id=bench.fresh("sesn")
    )
    return (await bench.operator.ForkSession(request)).session


@group
async def prefix_shared(bench: Bench) -> None:
    """A fork has its source's events up to the position, the same in every field."""
    made = await bench.session(bench.events(5))
    request = pb.ForkSessionRequest(
        source_session_id=made.session_id, position=3, session_id=bench.fresh("sesn"), title="f"
    )
    forked = (await bench.operator.ForkSession(request)).session
    equal("id, title", (forked.session_id, forked.title), (request.session_id, "f"))
    equal("from, at", (forked.forked_from, forked.forked_at), (made.session_id, 3))
    equal("workspace", forked.workspace, made.workspace)
    equal("chain_id", forked.chain_id, made.session_id)
    source = await bench.log(made.session_id)
    equal("the log", await verify(bench, forked.session_id), source[:3])
    equal("head", (forked.head.position, forked.head.hash), (3, source[2].hash))


@group
async def apart_afterwards(bench: Bench) -> None:
    """What is appended to source or fork does not show in the other, and both chains hold."""
    made = await bench.session(bench.events(3))
    forked = await fork(bench, made.session_id, 2)
    mine = await bench.emit(forked.session_id, bench.event(data=b'"fork"'))
    theirs = await bench.emit(made.session_id, bench.event(data=b'"source"'))
    equal("positions", (mine.position, theirs.position), (3, 4))
    source = await verify(bench, made.session_id)
    branch = await verify(bench, forked.session_id)
    equal("the source's length", len(source), 4)
    equal("the fork's length", len(branch), 3)
    must(mine.id not in {event.id for event in source}, "the source has the fork's event")
    equal("the shared part", branch[:2], source[:2])


@group
async def fork_of_a_fork(bench: Bench) -> None:
    """A fork of a fork has events of both, and a chain that begins where the first one does."""
    made = await bench.session(bench.events(4))
    middle = await fork(bench, made.session_id, 3)
    await bench.emit(middle.session_id, bench.event())
    await bench.emit(middle.session_id, bench.event())
    last = await fork(bench, middle.session_id, 4)
    low = await fork(bench, last.session_id, 2)
    for one in (last, low):
        await bench.emit(one.session_id, bench.event())
        equal("chain_id", one.chain_id, made.session_id)
    between = await verify(bench, middle.session_id)
    equal("the fork's fork", (await verify(bench, last.session_id))[:4], between[:4])
    equal("forked below", (await verify(bench, low.session_id))[:2], between[:2])
    equal("from", (last.forked_from, last.forked_at), (middle.session_id, 4))


@group
async def ids_of_the_prefix(bench: Bench) -> None:
    """Event ids of the shared prefix are known in the fork; later ones of the source are not."""
    events = bench.events(4)
    made = await bench.session(events)
    forked = await fork(bench, made.session_id, 2)
    again = await bench.emit(forked.session_id, events[1])
    equal("a shared one's position", again.position, 2)
    with refused(Reason.ID_REUSED):
        await bench.emit(forked.session_id, bench.event(data=b'"x"', id=events[0].id))
    free = await bench.emit(forked.session_id, bench.event(data=b'"x"', id=events[3].id))
    equal("a later one's position", free.position, 3)


@group
async def forked_again(bench: Bench) -> None:
    """The same fork again is the first answer; the id for another fork is ID_REUSED."""
    made, other = await bench.session(bench.events(4)), await bench.session(bench.events(4))
    request = pb.ForkSessionRequest(
        source_session_id=made.session_id, position=2, session_id=bench.fresh("sesn")
    )
    first = (await bench.operator.ForkSession(request)).session
    equal("again", (await bench.operator.ForkSession(request)).session, first)
    for change in (
        pb.ForkSessionRequest(position=3),
        pb.ForkSessionRequest(source_session_id=other.session_id),
        pb.ForkSessionRequest(title="t"),
        pb.ForkSessionRequest(session_id=other.session_id),
    ):
        changed = pb.ForkSessionRequest()
        changed.CopyFrom(request)
        changed.MergeFrom(change)
        with refused(Reason.ID_REUSED):
            await bench.operator.ForkSession(changed)
    with refused(Reason.ID_REUSED):
        create = pb.CreateSessionRequest(session_id=first.session_id)
        await bench.operator.CreateSession(create)


@group
async def position_beyond_head(bench: Bench) -> None:
    """A fork at the head is made, and one beyond it is POSITION_BEYOND_HEAD."""
    made = await bench.session(bench.events(2))
    equal("head", (await fork(bench, made.session_id, 2)).head.position, 2)
    with refused(Reason.POSITION_BEYOND_HEAD):
        await fork(bench, made.session_id, 3)


@group
async def no_source(bench: Bench) -> None:
    """A fork of what is not there is SESSION_NOT_FOUND, as is one of another workspace's."""
    with refused(Reason.SESSION_NOT_FOUND):
        await fork(bench, bench.fresh("sesn"), 1)
    made = await bench.session(bench.events(2))
    request = pb.ForkSessionRequest(
        source_session_id=made.session_id, position=1, session_id=bench.fresh("sesn")
    )
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.other.ForkSession(request)


@group
async def lease_of_its_own(bench: Bench) -> None:
    """A driven source is forked, and the fork has no driver: its lease is its own."""
    made = await bench.session(bench.events(2))
    await bench.lease(made.session_id)
    forked = await fork(bench, made.session_id, 2)
    equal("holder", forked.lease.holder, "")
    lease = (await bench.lease(forked.session_id, stub=bench.brain2)).lease
    await bench.emit(
        forked.session_id, bench.event("agent.message"), stub=bench.brain2, epoch=lease.epoch
    )


@group
async def archived_source(bench: Bench) -> None:
    """An archived session can be forked, and the fork takes events."""
    made = await bench.session(bench.events(2))
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=made.session_id))
    forked = await fork(bench, made.session_id, 2)
    must(not forked.HasField("archived"), "the fork is archived")
    equal("position", (await bench.emit(forked.session_id, bench.event())).position, 3)


@group
async def read_across_the_seam(bench: Bench) -> None:
    """Slices and tails of a fork go across its seam, either way and by type."""
    types = ["user.message", "system.message"] * 3
    made = await bench.session([bench.event(type) for type in types])
    forked = await fork(bench, made.session_id, 4)
    for type in types:
        await bench.emit(forked.session_id, bench.event(type))
    log = await verify(bench, forked.session_id)
    equal("the log's length", len(log), 10)
    request = pb.GetEventsRequest(session_id=forked.session_id, around=5, limit=4)
    around = (await bench.operator.GetEvents(request)).events
    must({4, 5} <= {event.position for event in around}, "around does not go across")
    request = pb.GetEventsRequest(
        session_id=forked.session_id,
        before=8,
        limit=3,
        order=types_pb2.EVENT_ORDER_NEWEST_FIRST,
        types=["user.*"],
    )
    answer = await bench.operator.GetEvents(request)
    equal("backwards", [event.position for event in answer.events], [7, 5, 3])
    equal("more", answer.more, True)
    tail = bench.tail({forked.session_id: 2})
    await tail.until_position(forked.session_id, 10)
    equal("tailed", tail.events[forked.session_id], log[2:])


@group
async def forked_by_a_brain(bench: Bench) -> None:
    """A brain may fork, and the fork is of the source's workspace."""
    made = await bench.session(bench.events(2))
    request = pb.ForkSessionRequest(
        source_session_id=made.session_id, position=1, session_id=bench.fresh("sesn")
    )
    forked = (await bench.brain.ForkSession(request)).session
    equal("workspace", forked.workspace, made.workspace)
