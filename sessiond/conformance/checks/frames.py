"""Groups on an Append stream: all or nothing, in the order sent, refused in a row."""

import asyncio

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.verdict import equal, refused, refused_ack
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("append")
GROUP_BYTES = 4 * 2**20


@group
async def group_positions(bench: Bench) -> None:
    """A group's ack has its sequence and the position of its first event."""
    made = await bench.session(bench.events(3))
    lane = bench.lane()
    for count in (1, 5, 2):
        await lane.send(made.session_id, *bench.events(count))
    acks = [await lane.ack() for _ in range(3)]
    equal("sequences", [ack.sequence for ack in acks], [1, 2, 3])
    equal("positions", [ack.position for ack in acks], [4, 5, 10])


@group
async def in_the_order_sent(bench: Bench) -> None:
    """Groups that are pipelined, several in a frame, are committed in the order sent."""
    made = await bench.session()
    held = await bench.lease(made.session_id)
    lane = bench.lane()
    sent = []
    for _ in range(40):
        groups = []
        for _ in range(5):
            events = bench.events(2, "agent.message")
            sent += events
            groups.append(lane.group(made.session_id, events, epoch=held.lease.epoch))
        await lane.write(groups)
    positions = await lane.acked(200)
    equal("positions", positions, list(range(1, 401, 2)))
    equal(
        "the order", [e.id for e in await bench.log(made.session_id)], [event.id for event in sent]
    )


@group
async def group_again(bench: Bench) -> None:
    """A group sent again, on the same or another stream, has the position of the first time."""
    made = await bench.session()
    events = bench.events(3)
    lane = bench.lane()
    await lane.send(made.session_id, *events)
    await lane.send(made.session_id, bench.event())
    await lane.send(made.session_id, *events)
    equal("positions", await lane.acked(3), [1, 4, 1])
    other = bench.lane(bench.brain2)
    await other.send(made.session_id, *events)
    equal("on another stream", await other.acked(), [1])
    equal("the log's length", len(await bench.log(made.session_id)), 4)


@group
async def resend_after_cut(bench: Bench) -> None:
    """Everything resent after a stream was cut is there once, in order."""
    made = await bench.session()
    held = await bench.lease(made.session_id)
    sent = [bench.events(2, "agent.message") for _ in range(50)]
    for acked in (1, 10, 25):
        lane = bench.lane()
        for events in sent:
            await lane.send(made.session_id, *events, epoch=held.lease.epoch)
        await lane.acked(acked)
        lane.cancel()
    lane = bench.lane()
    for events in sent:
        await lane.send(made.session_id, *events, epoch=held.lease.epoch)
    equal("positions", await lane.acked(50), list(range(1, 101, 2)))
    ids = [event.id for event in await bench.log(made.session_id)]
    equal("the log", ids, [event.id for events in sent for event in events])


@group
async def all_or_nothing(bench: Bench) -> None:
    """A group with one event that is refused leaves nothing behind."""
    event = bench.event()
    made = await bench.session([event])
    lane = bench.lane()
    clash = bench.event(data=b"[1]", id=event.id)
    await lane.send(made.session_id, bench.event(), clash, bench.event())
    refused_ack((await lane.refusal()).status, Reason.ID_REUSED)
    equal("the log's length", len(await bench.log(made.session_id)), 1)


@group
async def same_id_in_a_group(bench: Bench) -> None:
    """One id twice in a group with other content is refused, and nothing is appended."""
    made = await bench.session()
    event = bench.event()
    lane = bench.lane()
    await lane.send(made.session_id, event, bench.event(data=b"[1]", id=event.id))
    refused_ack((await lane.refusal()).status, Reason.ID_REUSED)
    equal("the log's length", len(await bench.log(made.session_id)), 0)


@group
async def refused_in_a_row(bench: Bench) -> None:
    """After a refusal a session's later groups of the same epoch are PRIOR_GROUP_REFUSED."""
    made, other = await bench.session(), await bench.session()
    held = await bench.lease(made.session_id)
    epoch = held.lease.epoch
    lane = bench.lane()
    await lane.send(made.session_id, bench.event("agent.message"), epoch=epoch)
    await lane.send(made.session_id, bench.event(""), epoch=epoch)
    await lane.send(made.session_id, bench.event("agent.message"), epoch=epoch)
    await lane.send(other.session_id, bench.event())
    await lane.send(made.session_id, bench.event("agent.message"), epoch=epoch)
    equal("the first", await lane.acked(), [1])
    refused_ack((await lane.refusal()).status, Reason.INVALID_FIELD)
    refused_ack((await lane.refusal()).status, Reason.PRIOR_GROUP_REFUSED)
    equal("another session's", await lane.acked(), [1])
    refused_ack((await lane.refusal()).status, Reason.PRIOR_GROUP_REFUSED)
    equal("the log's length", len(await bench.log(made.session_id)), 1)


@group
async def higher_epoch_afresh(bench: Bench) -> None:
    """After a refusal a higher epoch starts afresh on the same stream."""
    made = await bench.session()
    old = (await bench.lease(made.session_id)).lease.epoch
    new = (await bench.lease(made.session_id)).lease.epoch
    lane = bench.lane()
    await lane.send(made.session_id, bench.event("agent.message"), epoch=old)
    await lane.send(made.session_id, bench.event("agent.message"), epoch=old)
    await lane.send(made.session_id, bench.event("agent.message"), epoch=new)
    await lane.send(made.session_id, bench.event("agent.message"), epoch=new)
    refused_ack((await lane.refusal()).status, Reason.STALE_EPOCH)
    refused_ack((await lane.refusal()).status, Reason.PRIOR_GROUP_REFUSED)
    equal("under the higher epoch", await lane.acked(2), [1, 2])


@group
async def another_stream_goes_on(bench: Bench) -> None:
    """A refusal on one stream refuses nothing on another."""
    made = await bench.session()
    epoch = (await bench.lease(made.session_id)).lease.epoch
    lane, other = bench.lane(), bench.lane()
    await lane.send(made.session_id, bench.event(""), epoch=epoch)
    await lane.refusal()
    await other.send(made.session_id, bench.event("agent.message"), epoch=epoch)
    equal("position", await other.acked(), [1])


@group
async def stale_resends(bench: Bench) -> None:
    """A fenced driver's groups are refused on its stream, resends of what is there too."""
    made = await bench.session()
    first = await bench.lease(made.session_id)
    lane = bench.lane()
    events = bench.events(2, "agent.message")
    await lane.send(made.session_id, *events, epoch=first.lease.epoch)
    await lane.acked()
    await bench.lease(made.session_id)
    await lane.send(made.session_id, *events, epoch=first.lease.epoch)
    refused_ack((await lane.refusal()).status, Reason.STALE_EPOCH)
    fresh = bench.lane()
    await fresh.send(made.session_id, *events, epoch=first.lease.epoch)
    refused_ack((await fresh.refusal()).status, Reason.STALE_EPOCH)


@group
async def refusals_of_a_stream(bench: Bench) -> None:
    """A stream refuses what EmitEvent refuses, for the same reasons."""
    made, archived = await bench.session(), await bench.session()
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=archived.session_id))
    for session_id, event, reason in [
        (bench.fresh("sesn"), bench.event(), Reason.SESSION_NOT_FOUND),
        (archived.session_id, bench.event(), Reason.SESSION_ARCHIVED),
        (made.session_id, bench.event("agent.message"), Reason.EPOCH_REQUIRED),
        (made.session_id, bench.event(id=""), Reason.INVALID_FIELD),
        (made.session_id, bench.event(data=bytes(2**20 + 1)), Reason.EVENT_TOO_LARGE),
    ]:
        lane = bench.lane()
        await lane.send(session_id, event)
        refused_ack((await lane.refusal()).status, reason)


@group
async def operator_streams(bench: Bench) -> None:
    """An operator may stream inbox types and no others."""
    made = await bench.session()
    lane = bench.lane(bench.operator)
    await lane.send(made.session_id, bench.event(), wake=True)
    await lane.send(made.session_id, bench.event("agent.message"))
    equal("position", await lane.acked(), [1])
    refused_ack((await lane.refusal()).status, Reason.EPOCH_REQUIRED)
    equal("wake", (await bench.info(made.session_id)).wake, 1)


@group
async def group_events_limit(bench: Bench) -> None:
    """A group of 1,000 events is taken, and one of 1,001 is GROUP_TOO_LARGE."""
    made = await bench.session()
    lane = bench.lane()
    await lane.send(made.session_id, *bench.events(1000))
    equal("position", await lane.acked(), [1])
    await lane.send(made.session_id, *bench.events(1001))
    refused_ack((await lane.refusal()).status, Reason.GROUP_TOO_LARGE)
    equal("the log's length", len(await bench.log(made.session_id)), 1000)


@group
async def group_bytes_limit(bench: Bench) -> None:
    """A group with 4 MiB of data is taken, and one byte more is GROUP_TOO_LARGE."""
    made = await bench.session()
    lane = bench.lane()
    quarter = bytes(GROUP_BYTES // 4)
    await lane.send(made.session_id, *(bench.event(data=quarter) for _ in range(4)))
    equal("position", await lane.acked(), [1])
    over = [bench.event(data=quarter) for _ in range(4)]
    await lane.send(made.session_id, *over, bench.event(data=b"1"))
    refused_ack((await lane.refusal()).status, Reason.GROUP_TOO_LARGE)
    request = pb.GetSessionRequest(session_id=made.session_id)
    equal("head", (await bench.brain.GetSession(request)).session.head.position, 4)


@group
async def empty_group(bench: Bench) -> None:
    """A group without events is refused."""
    made = await bench.session()
    lane = bench.lane()
    await lane.send(made.session_id)
    refused_ack((await lane.refusal()).status, Reason.INVALID_FIELD)


@group
async def sequence_out_of_turn(bench: Bench) -> None:
    """A group whose sequence is not the next one of the stream ends it, and is not appended."""
    made = await bench.session()
    lane = bench.lane()
    skipped = lane.group(made.session_id, bench.events(1))
    skipped.sequence = 7
    with refused(Reason.INVALID_FIELD):
        await lane.write([skipped])
        await lane.ack()
    equal("the log's length", len(await bench.log(made.session_id)), 0)


@group
async def many_sessions(bench: Bench) -> None:
    """One stream carries groups of many sessions, each gapless by itself."""
    made = await asyncio.gather(*(bench.session() for _ in range(10)))
    lane = bench.lane()
    for number in range(100):
        await lane.send(made[number % 10].session_id, *bench.events(2))
    await lane.acked(100)
    for session in made:
        equal("the log's length", len(await bench.log(session.session_id)), 20)
