"""Redaction erases one event's data, and nothing that proves the log."""

from carpal.chain import data_digest
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.checks.chain import verify
from sessiond.conformance.checks.forks import fork
from sessiond.conformance.group import Group

group = Group("redaction")


async def redact(
    bench: Bench, session_id: str, position: int, reason: str = "it was a secret"
) -> types_pb2.Event:
    """Erase an event's data, as the operator."""
    request = pb.RedactEventRequest(session_id=session_id, position=position, reason=reason)
    return (await bench.operator.RedactEvent(request)).event


@group
async def erased(bench: Bench) -> None:
    """A redacted event keeps all but its data, and says who erased it, when and why."""
    made = await bench.session([bench.event(data=b'"secret"') for _ in range(3)])
    before = (await bench.log(made.session_id))[1]
    event = await redact(bench, made.session_id, 2)
    equal("data", event.data, b"")
    equal("by", event.redaction.by, bench.caller("operator").identity.uri)
    equal("reason", event.redaction.reason, "it was a secret")
    must(event.redaction.HasField("time"), "it has no time")
    equal("digest", event.data_digest, data_digest(b'"secret"'))
    rest = types_pb2.Event()
    rest.CopyFrom(event)
    rest.ClearField("redaction")
    rest.data = before.data
    equal("the rest", rest, before)


@group
async def read_erased(bench: Bench) -> None:
    """Every read shows the redaction, and the chain and its head are whole."""
    made = await bench.session(bench.events(3))
    event = await redact(bench, made.session_id, 2)
    log = await verify(bench, made.session_id)
    equal("in a slice", log[1], event)
    equal("head", (await bench.info(made.session_id)).head, made.head)
    tail = bench.tail({made.session_id: 0})
    await tail.until_live()
    equal("in a tail", tail.events[made.session_id], log)
    request = pb.GetSessionRequest(session_id=made.session_id, first_events=3)
    equal("at first", list((await bench.operator.GetSession(request)).events), log)


@group
async def redacted_again(bench: Bench) -> None:
    """Redacting twice is the first answer, whatever reason is given."""
    made = await bench.session(bench.events(1))
    first = await redact(bench, made.session_id, 1)
    equal("again", await redact(bench, made.session_id, 1), first)
    equal("for another reason", await redact(bench, made.session_id, 1, "other"), first)


@group
async def not_there(bench: Bench) -> None:
    """Redacting what is not there is SESSION_NOT_FOUND: session, position or workspace."""
    made = await bench.session(bench.events(1))
    for id, position in ((bench.fresh("sesn"), 1), (made.session_id, 2), (made.session_id, 0)):
        with refused(Reason.SESSION_NOT_FOUND):
            await redact(bench, id, position)
    request = pb.RedactEventRequest(session_id=made.session_id, position=1, reason="r")
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.other.RedactEvent(request)


@group
async def in_every_fork(bench: Bench) -> None:
    """Redaction is for every fork that shares the event, whichever of them is named."""
    made = await bench.session(bench.events(4))
    forked = await fork(bench, made.session_id, 3)
    further = await fork(bench, forked.session_id, 2)
    await redact(bench, made.session_id, 1)
    await redact(bench, further.session_id, 2)
    for id in (made.session_id, forked.session_id, further.session_id):
        log = await verify(bench, id)
        erased = [event.position for event in log if event.HasField("redaction")]
        equal("redacted", erased, [1, 2])
        equal("data", [event.data for event in log[:2]], [b"", b""])


@group
async def only_what_is_shared(bench: Bench) -> None:
    """Redacting a fork's own event leaves its source's at that position alone."""
    made = await bench.session(bench.events(3))
    forked = await fork(bench, made.session_id, 2)
    await bench.emit(forked.session_id, bench.event())
    await redact(bench, forked.session_id, 3)
    must(not (await bench.log(made.session_id))[2].HasField("redaction"), "the source's is too")


@group
async def resend_of_redacted(bench: Bench) -> None:
    """A redacted event sent again is not appended anew; its id is still taken."""
    event = bench.event(data=b'"secret"')
    made = await bench.session([event])
    await redact(bench, made.session_id, 1)
    again = await bench.emit(made.session_id, event)
    equal("position and data", (again.position, again.data), (1, b""))
    with refused(Reason.ID_REUSED):
        await bench.emit(made.session_id, bench.event(data=b"", id=event.id))
    equal("the log's length", len(await bench.log(made.session_id)), 1)
