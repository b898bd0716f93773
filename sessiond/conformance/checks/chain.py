"""The hash chain: recomputed from what is read, and signed."""

from datetime import UTC, datetime

from carpal import signed
from carpal.chain import data_digest, event_hash, genesis
from carpal.identity import Role
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import Failed, equal, must
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("chain")


async def verify(bench: Bench, session_id: str) -> list[types_pb2.Event]:
    """A session's log, whose every digest and hash was recomputed up to its head."""
    info = await bench.info(session_id)
    log = await bench.log(session_id)
    previous = genesis(info.chain_id)
    for event in log:
        if not event.HasField("redaction"):
            equal(f"the digest of {event.position}", event.data_digest, data_digest(event.data))
        previous = event_hash(
            previous,
            id=event.id,
            position=event.position,
            time_ns=event.time.ToNanoseconds(),
            type=event.type,
            source=event.source,
            must_understand=event.must_understand,
            digest=event.data_digest,
        )
        if event.hash != previous:
            raise Failed(f"the hash of {event.position} does not follow from the one before")
    if log and info.head.position == len(log):
        equal("the head's hash", info.head.hash, previous)
    return log


@group
async def recomputed(bench: Bench) -> None:
    """Every event's hash follows from the one before, however the event came to be."""
    made = await bench.session(bench.events(2), wake=True)
    id = made.session_id
    await bench.operator.UpdateSession(
        pb.UpdateSessionRequest(session_id=id, event_id=bench.fresh("sevt"), title="t", data=b"{}")
    )
    await bench.emit(id, bench.event("user.message", '{"é":"ü"}'.encode(), must_understand=True))
    lease = (await bench.lease(id)).lease
    lane = bench.lane()
    await lane.send(id, *bench.events(5, "agent.message"), epoch=lease.epoch)
    await lane.acked()
    await bench.release(id, lease.epoch, processed=1)
    equal("events", len(await verify(bench, id)), 9)


@group
async def parked_log(bench: Bench) -> None:
    """What the service appends itself is in the chain too."""
    made = await bench.session(bench.events(1), wake=True)
    for _ in range(3):
        lease = (await bench.lease(made.session_id)).lease
        await bench.release(made.session_id, lease.epoch, failure="it broke")
    must(len(await verify(bench, made.session_id)) > 1, "the service appended nothing")


@group
async def begins_with_its_id(bench: Bench) -> None:
    """The chain of a session that is no fork and no import begins with the session's own id."""
    made = await bench.session()
    equal("chain_id", made.chain_id, made.session_id)


@group
async def head_follows(bench: Bench) -> None:
    """A session's head is the position and hash of its last event, after every append."""
    made = await bench.session()
    for _ in range(5):
        event = await bench.emit(made.session_id, bench.event())
        head = (await bench.info(made.session_id)).head
        equal("head", (head.position, head.hash), (event.position, event.hash))


@group
async def head_signed(bench: Bench) -> None:
    """The head is signed on request, by a session service, with the session and its chain."""
    made = await bench.session(bench.events(3))
    request = pb.GetSessionRequest(session_id=made.session_id, sign_head=True)
    answer = await bench.operator.GetSession(request)
    must(answer.HasField("signed_head"), "not built")
    caller = bench.caller("operator")
    signed.verify(answer.signed_head, caller.ca, Role.SESSIOND, datetime.now(UTC))
    head = types_pb2.SignedHead.FromString(answer.signed_head.payload)
    equal("session and chain", (head.session_id, head.chain_id), (made.session_id, made.session_id))
    equal("head", head.head, made.head)
    must(head.HasField("time"), "it has no time")
    unasked = await bench.operator.GetSession(pb.GetSessionRequest(session_id=made.session_id))
    must(not unasked.HasField("signed_head"), "it is signed without being asked for")
