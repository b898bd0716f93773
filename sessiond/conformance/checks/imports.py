"""An exported log is taken in as it was, or not at all."""

from collections.abc import Iterable, Iterator, Sequence

from carpal.status import Reason
from carpal.upload import Upload
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.checks.chain import verify
from sessiond.conformance.checks.redaction import redact
from sessiond.conformance.group import Group
from sessiond.conformance.streams import uploaded

group = Group("import")
Exported = tuple[types_pb2.SessionInfo, list[types_pb2.Event]]


async def _exported(bench: Bench, count: int = 6) -> Exported:
    """A session as an export has it, under a fresh id, for it is there already under its own."""
    request = pb.CreateSessionRequest(
        session_id=bench.fresh("sesn"),
        title="a title",
        metadata={"k": "v"},
        labels={"team": "a"},
        events=bench.events(count),
        wake=True,
    )
    made = (await bench.operator.CreateSession(request)).session
    log = await bench.log(made.session_id)
    made.session_id = bench.fresh("sesn")
    return made, log


def _messages(
    session: types_pb2.SessionInfo, log: Sequence[types_pb2.Event], size: int = 2
) -> Iterator[pb.ImportSessionRequest]:
    """The stream that imports a log, `size` events a message."""
    yield pb.ImportSessionRequest(session=session, events=log[:size])
    for start in range(size, len(log), size):
        yield pb.ImportSessionRequest(events=log[start : start + size])


async def _import(
    bench: Bench, session: types_pb2.SessionInfo, log: Sequence[types_pb2.Event]
) -> types_pb2.SessionInfo:
    return (await uploaded(bench.operator.ImportSession(), _messages(session, log))).session


@group
async def as_it_was(bench: Bench) -> None:
    """An imported log is the exported one in every field, and its chain holds."""
    session, log = await _exported(bench)
    made = await _import(bench, session, log)
    equal("the log", await verify(bench, session.session_id), log)
    equal("head", made.head, session.head)
    equal("chain_id and imported_to", (made.chain_id, made.imported_to), (session.chain_id, 6))
    equal("title", made.title, "a title")
    equal("metadata, labels", (dict(made.metadata), dict(made.labels)), ({"k": "v"}, {"team": "a"}))
    equal("workspace", made.workspace, bench.workspace)


@group
async def goes_on(bench: Bench) -> None:
    """An imported session is one like any other: it is driven, appended to and forked."""
    session, log = await _exported(bench)
    await _import(bench, session, log)
    lease = (await bench.lease(session.session_id)).lease
    event = await bench.emit(session.session_id, bench.event("a.b"), epoch=lease.epoch)
    equal("position", event.position, 7)
    equal("the log's length", len(await verify(bench, session.session_id)), 7)
    info = await bench.info(session.session_id)
    equal("imported_to", info.imported_to, 6)
    again = pb.EmitEventRequest(session_id=session.session_id)
    again.event.CopyFrom(types_pb2.NewEvent(id=log[2].id, type=log[2].type, data=log[2].data))
    equal("a known event", (await bench.operator.EmitEvent(again)).event.position, 3)


@group
async def not_woken(bench: Bench) -> None:
    """An imported session is not woken, although it was when it was exported."""
    session, log = await _exported(bench)
    await _import(bench, session, log)
    offers = bench.runnable(bench.workspace)
    marker = await bench.session(bench.events(1), wake=True)
    await offers.until(marker.session_id)
    must(session.session_id not in offers.seen, "it is offered")
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=marker.session_id))


@group
async def imported_again(bench: Bench) -> None:
    """The same import again is the first answer; another chain under the id is ID_REUSED."""
    session, log = await _exported(bench)
    first = await _import(bench, session, log)
    equal("again", await _import(bench, session, log), first)
    other, other_log = await _exported(bench)
    other.session_id = session.session_id
    with refused(Reason.ID_REUSED):
        await _import(bench, other, other_log)
    taken = await bench.session(bench.events(1))
    session.session_id = taken.session_id
    with refused(Reason.ID_REUSED):
        await _import(bench, session, log)


@group
async def not_there_until_whole(bench: Bench) -> None:
    """A session is not there until its last event is, and a cut import goes on when sent again."""
    session, log = await _exported(bench)
    upload = Upload(bench.operator.ImportSession())
    await upload.send(pb.ImportSessionRequest(session=session, events=log[:4]))
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetSession(pb.GetSessionRequest(session_id=session.session_id))
    upload.close()
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetSession(pb.GetSessionRequest(session_id=session.session_id))
    await _import(bench, session, log)
    equal("the log", await verify(bench, session.session_id), log)


@group
async def broken(bench: Bench) -> None:
    """An event that does not continue the chain is CHAIN_BROKEN, and nothing is there."""
    session, log = await _exported(bench)
    for what, changed in _broken(log):
        session.session_id = bench.fresh("sesn")
        try:
            with refused(Reason.CHAIN_BROKEN):
                await _import(bench, session, changed)
        except Exception as error:
            error.args = (f"{what}: {error}",)
            raise
        with refused(Reason.SESSION_NOT_FOUND):
            await bench.info(session.session_id)


@group
async def redacted(bench: Bench) -> None:
    """A redacted event is imported as it is read, with its digest and who erased it."""
    made = await bench.session(bench.events(3))
    await redact(bench, made.session_id, 2)
    log = await bench.log(made.session_id)
    made.session_id = bench.fresh("sesn")
    await _import(bench, made, log)
    equal("the log", await verify(bench, made.session_id), log)


@group
async def own_workspace(bench: Bench) -> None:
    """An import is of the operator's own workspace, and others do not see it."""
    session, log = await _exported(bench)
    await _import(bench, session, log)
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.other.GetSession(pb.GetSessionRequest(session_id=session.session_id))


def _broken(log: Sequence[types_pb2.Event]) -> Iterable[tuple[str, list[types_pb2.Event]]]:
    """Logs in which one thing is not as it was, and what."""
    for field, value in (
        ("data", b'"other"'),
        ("id", "other"),
        ("type", "user.other"),
        ("source", "spiffe://x/operator/x"),
        ("must_understand", True),
        ("data_digest", bytes(32)),
        ("hash", bytes(32)),
    ):
        changed = _copy(log)
        setattr(changed[2], field, value)
        yield field, changed
    late = _copy(log)
    late[2].time.nanos = (late[2].time.nanos + 1) % 10**9
    yield "time", late
    yield "one is missing", [*log[:2], *log[3:]]
    yield "two have changed places", [*log[:2], log[3], log[2], *log[4:]]


def _copy(log: Sequence[types_pb2.Event]) -> list[types_pb2.Event]:
    return [types_pb2.Event.FromString(event.SerializeToString()) for event in log]
