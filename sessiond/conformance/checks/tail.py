"""Tails: replay, then live, many sessions, no gap and no repeat."""

import asyncio

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("tail")


@group
async def replay_then_live(bench: Bench) -> None:
    """A tail replays the log, marks itself live at the head, then sends what is appended."""
    made = await bench.session(bench.events(5))
    tail = bench.tail({made.session_id: 0})
    await tail.until_live()
    equal("the head at the mark", tail.live[made.session_id], 5)
    equal("replayed", len(tail.events[made.session_id]), 5)
    event = await bench.emit(made.session_id, bench.event(data=b'{"a":1}'))
    await tail.until_position(made.session_id, 6)
    equal("the live event", tail.events[made.session_id][-1], event)
    log = await bench.log(made.session_id)
    equal("the whole", tail.events[made.session_id], log)


@group
async def from_a_position(bench: Bench) -> None:
    """A tail begins above its cursor, and at the head it is live at once, with no events."""
    made = await bench.session(bench.events(5))
    tail = bench.tail({made.session_id: 3})
    await tail.until_live()
    equal("positions", [event.position for event in tail.events[made.session_id]], [4, 5])
    at_head = bench.tail({made.session_id: 5})
    await at_head.until_live()
    equal("at the head", at_head.events[made.session_id], [])
    empty = await bench.session()
    tail = bench.tail({empty.session_id: 0})
    await tail.until_live()
    equal("of an empty log", tail.live[empty.session_id], 0)


@group
async def many_sessions(bench: Bench) -> None:
    """One tail follows many sessions, each from its own position with its own live mark."""
    made = await asyncio.gather(*(bench.session(bench.events(4)) for _ in range(10)))
    cursors = {session.session_id: number % 5 for number, session in enumerate(made)}
    tail = bench.tail(cursors)
    await tail.until_live()
    for session_id, after in cursors.items():
        equal("replayed", len(tail.events[session_id]), 4 - after)
        await bench.emit(session_id, bench.event())
    for session_id in cursors:
        await tail.until_position(session_id, 5)


@group
async def as_many_as_promised(bench: Bench) -> None:
    """A tail of no session, or of 1,001, is refused."""
    with refused(Reason.INVALID_FIELD):
        await bench.tail({}).read()
    with refused(Reason.INVALID_FIELD):
        await bench.tail({bench.fresh("sesn"): 0 for _ in range(1001)}).read()


@group
async def by_type(bench: Bench) -> None:
    """A tail by types sends only those, and its live mark has the log's head all the same."""
    types = ["user.message", "system.message", "user.interrupt", "hand.event"]
    made = await bench.session([bench.event(type) for type in types])
    tail = bench.tail({made.session_id: 0}, types=["user.*"])
    await tail.until_live()
    equal("positions", [event.position for event in tail.events[made.session_id]], [1, 3])
    equal("the head at the mark", tail.live[made.session_id], 4)
    await bench.emit(made.session_id, bench.event("system.message"))
    await bench.emit(made.session_id, bench.event("user.interrupt"))
    await tail.until_position(made.session_id, 6)
    equal("positions", [event.position for event in tail.events[made.session_id]], [1, 3, 6])


@group
async def no_gap_while_appended(bench: Bench) -> None:
    """No event is skipped or repeated while several append, whenever a tail begins."""
    made = await bench.session()
    total = 400

    async def write() -> None:
        lane = bench.lane()
        for _ in range(total // 4):
            await lane.send(made.session_id, *bench.events(2))
        await lane.acked(total // 4)

    async def follow(from_position: int) -> list[str]:
        first = bench.tail({made.session_id: 0})
        await first.until_position(made.session_id, from_position)
        late = bench.tail({made.session_id: from_position})
        await late.until_position(made.session_id, total)
        seen = first.events[made.session_id][:from_position] + late.events[made.session_id]
        return [event.id for event in seen]

    *seen, _, _ = await asyncio.gather(follow(1), follow(50), follow(200), write(), write())
    ids = [event.id for event in await bench.log(made.session_id)]
    for one in seen:
        must(one == ids, "a tail does not have the log's events in the log's order")


@group
async def resumed(bench: Bench) -> None:
    """A tail cut at any moment and resumed from the last position has no gap and no repeat."""
    made = await bench.session(bench.events(200))
    seen: list[str] = []
    while len(seen) < 200:
        tail = bench.tail({made.session_id: len(seen)})
        message = await tail.read()
        tail.cancel()
        seen += [event.id for event in message.events[:30]]
    equal("ids", seen, [event.id for event in await bench.log(made.session_id)])


@group
async def unread(bench: Bench) -> None:
    """A tail that nobody reads holds up no writer, and catches up without a gap."""
    made = await bench.session()
    idle = bench.tail({made.session_id: 0})
    lane = bench.lane(bench.brain2)
    data = bytes(256 * 1024)
    for _ in range(64):
        await lane.send(made.session_id, bench.event(data=data))
    await lane.acked(64)
    await idle.until_position(made.session_id, 64)


@group
async def unknown(bench: Bench) -> None:
    """A tail that names one session that is not there is SESSION_NOT_FOUND."""
    made = await bench.session()
    with refused(Reason.SESSION_NOT_FOUND):
        tail = bench.tail({made.session_id: 0, bench.fresh("sesn"): 0})
        while True:
            await tail.read()


@group
async def beyond_the_head(bench: Bench) -> None:
    """A cursor beyond the head is POSITION_BEYOND_HEAD, whichever of the sessions it is of."""
    made, other = await bench.session(bench.events(2)), await bench.session(bench.events(2))
    with refused(Reason.POSITION_BEYOND_HEAD):
        tail = bench.tail({other.session_id: 0, made.session_id: 3})
        while True:
            await tail.read()


@group
async def deleted_while_tailed(bench: Bench) -> None:
    """A tail of a session that is deleted ends as SESSION_NOT_FOUND."""
    made = await bench.session(bench.events(2))
    tail = bench.tail({made.session_id: 0}, stub=bench.operator)
    await tail.until_live()
    await bench.operator.DeleteSession(pb.DeleteSessionRequest(session_id=made.session_id))
    with refused(Reason.SESSION_NOT_FOUND):
        while True:
            await tail.read()
