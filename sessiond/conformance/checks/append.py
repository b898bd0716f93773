"""One event is appended: idempotent, fenced, limited."""

import asyncio
from hashlib import sha256

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import TERM_SHORT, Bench
from sessiond.conformance.group import Group

group = Group("append")
INBOX = ("user.message", "user.interrupt", "system.message", "hand.event", "hand.offered")
EVENT_BYTES = 2**20


@group
async def emitted_as_read(bench: Bench) -> None:
    """An emitted event is answered as it is read: position, time, source, digest, hash."""
    made = await bench.session(bench.events(1))
    sent = bench.event("user.message", b'{"a":1}', must_understand=True)
    event = await bench.emit(made.session_id, sent, stub=bench.operator)
    equal("what is read", (await bench.log(made.session_id, bench.operator))[1], event)
    equal("id, type, data", (event.id, event.type, event.data), (sent.id, sent.type, sent.data))
    equal("position", event.position, 2)
    equal("must_understand", event.must_understand, True)
    equal("source", event.source, bench.caller("operator").identity.uri)
    equal("data_digest", event.data_digest, sha256(sent.data).digest())
    must(event.HasField("time") and len(event.hash) == 32, "time or hash is missing")


@group
async def bytes_kept(bench: Bench) -> None:
    """Data is given back byte for byte, however its JSON is written."""
    made = await bench.session()
    for data in (b"", b"{}", b' {"b":1,"a":1,"a":2.50e1}\n', '{"é":"\\u00e9","n":1e400}'.encode()):
        event = await bench.emit(made.session_id, bench.event(data=data), stub=bench.operator)
        equal("the data", event.data, data)
    log = await bench.log(made.session_id, bench.operator)
    equal("the second", log[2].data, b' {"b":1,"a":1,"a":2.50e1}\n')


@group
async def source_is_the_caller(bench: Bench) -> None:
    """An event's source is its appender's, by certificate."""
    made = await bench.session()
    for seat in ("operator", "brain", "brain-2"):
        caller = bench.caller(seat)
        event = await bench.emit(made.session_id, bench.event(), stub=caller.stub)
        equal("source", event.source, caller.identity.uri)


@group
async def emitted_again(bench: Bench) -> None:
    """An event with the same id and content is the first answer, and is appended once."""
    made = await bench.session()
    event = bench.event(data=b'{"a":1}')
    first = await bench.emit(made.session_id, event, stub=bench.operator)
    await bench.emit(made.session_id, bench.event(), stub=bench.operator)
    equal("again", await bench.emit(made.session_id, event, stub=bench.operator), first)
    equal("the log's length", len(await bench.log(made.session_id, bench.operator)), 2)


@group
async def emitted_at_once(bench: Bench) -> None:
    """The same event sent many times at once is appended once."""
    made = await bench.session()
    event = bench.event()
    answers = await asyncio.gather(*(bench.emit(made.session_id, event) for _ in range(20)))
    equal("distinct answers", len({one.SerializeToString() for one in answers}), 1)
    equal("the log's length", len(await bench.log(made.session_id)), 1)


@group
async def id_with_other_content(bench: Bench) -> None:
    """An event id that exists with other content is refused as ID_REUSED."""
    made = await bench.session()
    event = bench.event("user.message", b"{}")
    await bench.emit(made.session_id, event, stub=bench.operator)
    for other in (
        bench.event("user.message", b'{"a":1}', id=event.id),
        bench.event("user.other", b"{}", id=event.id),
        bench.event("user.message", b"{}", id=event.id, must_understand=True),
    ):
        with refused(Reason.ID_REUSED):
            await bench.emit(made.session_id, other, stub=bench.operator)
    equal("the log's length", len(await bench.log(made.session_id, bench.operator)), 1)


@group
async def ids_are_a_sessions_own(bench: Bench) -> None:
    """An event id is unique in its session, not between sessions."""
    one, two = await bench.session(), await bench.session()
    id = bench.fresh("sevt")
    await bench.emit(one.session_id, bench.event(id=id), stub=bench.operator)
    other = bench.event(data=b"[]", id=id)
    equal("position", (await bench.emit(two.session_id, other, stub=bench.operator)).position, 1)


@group
async def event_limit(bench: Bench) -> None:
    """Data of 1 MiB is taken, and one byte more is EVENT_TOO_LARGE."""
    made = await bench.session()
    fits = bench.event(data=bytes(EVENT_BYTES))
    equal("position", (await bench.emit(made.session_id, fits)).position, 1)
    with refused(Reason.EVENT_TOO_LARGE):
        await bench.emit(made.session_id, bench.event(data=bytes(EVENT_BYTES + 1)))
    equal("the log's length", len(await bench.log(made.session_id)), 1)


@group
async def event_id_limit(bench: Bench) -> None:
    """An event id of 128 bytes is taken; an empty one and one of 129 bytes are not."""
    made = await bench.session()
    longest = bench.fresh("sevt").ljust(126, "x") + "é"
    event = await bench.emit(made.session_id, bench.event(id=longest))
    equal("the id", event.id, longest)
    for bad in ("", f"{longest}x", f"{'x' * 127}é"):
        with refused(Reason.INVALID_FIELD):
            await bench.emit(made.session_id, bench.event(id=bad))


@group
async def type_missing(bench: Bench) -> None:
    """An event without a type is refused."""
    made = await bench.session()
    held = await bench.lease(made.session_id)
    with refused(Reason.INVALID_FIELD):
        await bench.emit(made.session_id, bench.event(""), epoch=held.lease.epoch)


@group
async def inbox_without_epoch(bench: Bench) -> None:
    """Inbox types come without an epoch, from operators and brains."""
    made = await bench.session()
    for stub in (bench.operator, bench.brain):
        for type in (*INBOX, "agent.thread_message_received"):
            await bench.emit(made.session_id, bench.event(type), stub=stub)


@group
async def inbox_of_the_vault(bench: Bench) -> None:
    """The vault may append inbox types without an epoch, and no other type."""
    made = await bench.session()
    vault = bench.caller("vault")
    event = await bench.emit(made.session_id, bench.event("user.message"), stub=vault.stub)
    equal("source", event.source, vault.identity.uri)
    with refused(Reason.EPOCH_REQUIRED):
        await bench.emit(made.session_id, bench.event("agent.message"), stub=vault.stub)


@group
async def people_in_hands(bench: Bench) -> None:
    """That a person entered a hand, or left, a brain appends without an epoch, and nobody else."""
    made = await bench.session()
    vault = bench.caller("vault")
    for type in ("hand.entered", "hand.left"):
        await bench.emit(made.session_id, bench.event(type), stub=bench.brain)
        for stub in (bench.operator, vault.stub):
            with refused(Reason.EPOCH_REQUIRED):
                await bench.emit(made.session_id, bench.event(type), stub=stub)


@group
async def epoch_required(bench: Bench) -> None:
    """Any other type without an epoch is EPOCH_REQUIRED, for brains too, driven or not."""
    made = await bench.session()
    for type in ("agent.message", "session.updated", "hand.provisioned", "users.message", "user"):
        for stub in (bench.operator, bench.brain):
            with refused(Reason.EPOCH_REQUIRED):
                await bench.emit(made.session_id, bench.event(type), stub=stub)
    await bench.lease(made.session_id)
    with refused(Reason.EPOCH_REQUIRED):
        await bench.emit(made.session_id, bench.event("agent.message"))
    equal("the log's length", len(await bench.log(made.session_id)), 0)


@group
async def driver_appends(bench: Bench) -> None:
    """The driver appends any type under its epoch."""
    made = await bench.session()
    held = await bench.lease(made.session_id)
    for type in ("agent.message", "user.message", "span.model_request_end", "session.status_idle"):
        await bench.emit(made.session_id, bench.event(type), epoch=held.lease.epoch)
    equal("the log's length", len(await bench.log(made.session_id)), 4)


@group
async def lower_epoch(bench: Bench) -> None:
    """An epoch below the lease's is STALE_EPOCH, inbox type or not, and nothing is appended."""
    made = await bench.session()
    first = await bench.lease(made.session_id)
    await bench.release(made.session_id, first.lease.epoch)
    await bench.lease(made.session_id, stub=bench.brain2)
    for type in ("agent.message", "user.message"):
        with refused(Reason.STALE_EPOCH):
            await bench.emit(made.session_id, bench.event(type), epoch=first.lease.epoch)
    equal("the log's length", len(await bench.log(made.session_id)), 0)


@group
async def epoch_before_duplicates(bench: Bench) -> None:
    """A resend under a lower epoch is STALE_EPOCH too: the epoch comes before duplicates."""
    made = await bench.session()
    first = await bench.lease(made.session_id)
    event = bench.event("agent.message")
    await bench.emit(made.session_id, event, epoch=first.lease.epoch)
    second = await bench.lease(made.session_id)
    with refused(Reason.STALE_EPOCH):
        await bench.emit(made.session_id, event, epoch=first.lease.epoch)
    again = await bench.emit(made.session_id, event, epoch=second.lease.epoch)
    equal("the resend's position", again.position, 1)


@group
async def expired_epoch(bench: Bench) -> None:
    """The epoch of an expired lease is STALE_EPOCH, also when nobody has taken another."""
    made = await bench.session()
    event = bench.event("agent.message")
    first = await bench.lease(made.session_id)
    await bench.emit(made.session_id, event, epoch=first.lease.epoch)
    held = await bench.lease(made.session_id, term=TERM_SHORT)
    await bench.expired(made.session_id)
    for late in (event, bench.event("agent.message")):
        with refused(Reason.STALE_EPOCH):
            await bench.emit(made.session_id, late, epoch=held.lease.epoch)
    equal("the log's length", len(await bench.log(made.session_id)), 1)


@group
async def released_epoch(bench: Bench) -> None:
    """The epoch of a released lease is STALE_EPOCH."""
    made = await bench.session()
    held = await bench.lease(made.session_id)
    await bench.release(made.session_id, held.lease.epoch)
    with refused(Reason.STALE_EPOCH):
        await bench.emit(made.session_id, bench.event("agent.message"), epoch=held.lease.epoch)


@group
async def epoch_of_another(bench: Bench) -> None:
    """Another brain's epoch, or one that was never granted, does not let a brain append."""
    made = await bench.session()
    held = await bench.lease(made.session_id)
    with refused():
        await bench.emit(
            made.session_id, bench.event("a.b"), stub=bench.brain2, epoch=held.lease.epoch
        )
    with refused():
        await bench.emit(made.session_id, bench.event("a.b"), epoch=held.lease.epoch + 1)
    never = await bench.session()
    with refused():
        await bench.emit(never.session_id, bench.event("a.b"), epoch=1)
    equal("the log's length", len(await bench.log(made.session_id)), 0)


@group
async def wake_recorded(bench: Bench) -> None:
    """A wake is recorded with its event: the session's wake is that position."""
    made = await bench.session(bench.events(1))
    await bench.emit(made.session_id, bench.event(), wake=True)
    await bench.emit(made.session_id, bench.event())
    info = await bench.info(made.session_id)
    equal("wake and head", (info.wake, info.head.position), (2, 3))


@group
async def gapless_under_contention(bench: Bench) -> None:
    """Positions are 1, 2, 3, … while several connections append at once, unary and streamed."""
    made = await bench.session()
    each = 60

    async def unary(seat: str) -> list[int]:
        stub = bench.caller(seat).stub
        answers = await asyncio.gather(
            *(bench.emit(made.session_id, bench.event(), stub=stub) for _ in range(each))
        )
        return [event.position for event in answers]

    async def streamed(seat: str) -> list[int]:
        lane = bench.lane(bench.caller(seat).stub)
        for _ in range(each):
            await lane.send(made.session_id, bench.event())
        return await lane.acked(each)

    taken = await asyncio.gather(
        unary("operator"), unary("brain"), streamed("brain"), streamed("brain-2")
    )
    positions = sorted(position for some in taken for position in some)
    equal("the positions answered", positions, list(range(1, 4 * each + 1)))
    log = await bench.log(made.session_id)
    equal("distinct ids", len({event.id for event in log}), 4 * each)


@group
async def acknowledged_is_read(bench: Bench) -> None:
    """What was acknowledged is read at once, through every connection."""
    made = await bench.session()
    for number in range(1, 11):
        event = await bench.emit(made.session_id, bench.event())
        for stub in (bench.operator, bench.brain2):
            request = pb.GetEventsRequest(session_id=made.session_id, after=number - 1)
            answer = await stub.GetEvents(request)
            equal("the newest", list(answer.events), [event])
            equal("head", answer.head, number)
