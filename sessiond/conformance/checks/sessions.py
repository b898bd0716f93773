"""Sessions are created, read and archived."""

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("sessions")
MAP_BYTES = 4096


@group
async def created_whole(bench: Bench) -> None:
    """A session is created with its first events and is read back as it was made."""
    request = pb.CreateSessionRequest(
        session_id=bench.fresh("sesn"),
        title="a title",
        metadata={"k": "v"},
        labels={"team": "a"},
        events=[bench.event("session.updated", b'{"a":1}'), bench.event("user.message")],
        wake=True,
    )
    made = (await bench.operator.CreateSession(request)).session
    read = await bench.operator.GetSession(
        pb.GetSessionRequest(session_id=made.session_id, first_events=10)
    )
    equal("the session read back", read.session, made)
    equal("the workspace", made.workspace, bench.workspace)
    equal("title", made.title, "a title")
    equal("metadata", dict(made.metadata), {"k": "v"})
    equal("labels", dict(made.labels), {"team": "a"})
    equal("head, wake, processed", (made.head.position, made.wake, made.processed), (2, 2, 0))
    equal("ids", [event.id for event in read.events], [event.id for event in request.events])
    equal("data", [event.data for event in read.events], [event.data for event in request.events])
    equal("positions", [event.position for event in read.events], [1, 2])
    must(made.HasField("created"), "created is not set")
    must(not made.HasField("archived"), "archived is set")


@group
async def created_again(bench: Bench) -> None:
    """The same create again answers with the session there is, and appends nothing."""
    request = pb.CreateSessionRequest(
        session_id=bench.fresh("sesn"), title="t", events=bench.events(2), wake=True
    )
    first = (await bench.operator.CreateSession(request)).session
    again = (await bench.operator.CreateSession(request)).session
    equal("the second answer", again, first)
    await bench.emit(first.session_id, bench.event(), stub=bench.operator)
    await bench.operator.CreateSession(request)
    equal("the log's length", len(await bench.log(first.session_id, bench.operator)), 3)


@group
async def id_reused(bench: Bench) -> None:
    """A session id that exists with other content is refused as ID_REUSED."""
    request = pb.CreateSessionRequest(
        session_id=bench.fresh("sesn"), title="t", events=bench.events(1)
    )
    await bench.operator.CreateSession(request)
    for change in (
        pb.CreateSessionRequest(title="other"),
        pb.CreateSessionRequest(metadata={"a": "b"}),
        pb.CreateSessionRequest(labels={"a": "b"}),
        pb.CreateSessionRequest(events=bench.events(1)),
        pb.CreateSessionRequest(wake=True),
    ):
        other = pb.CreateSessionRequest()
        other.CopyFrom(request)
        other.MergeFrom(change)
        with refused(Reason.ID_REUSED):
            await bench.operator.CreateSession(other)


@group
async def id_length(bench: Bench) -> None:
    """A session id of 128 bytes is taken, one of 129 is not."""
    longest = bench.fresh("sesn").ljust(128, "x")
    made = await bench.operator.CreateSession(pb.CreateSessionRequest(session_id=longest))
    equal("the id", made.session.session_id, longest)
    with refused(Reason.INVALID_FIELD):
        await bench.operator.CreateSession(pb.CreateSessionRequest(session_id=f"{longest}x"))


@group
async def id_malformed(bench: Bench) -> None:
    """A session id is not empty and of A-Z, a-z, 0-9, _ and - alone."""
    for bad in ("", "a/b", "a b", "é", "a.b", "a\n"):
        with refused(Reason.INVALID_FIELD):
            await bench.operator.CreateSession(pb.CreateSessionRequest(session_id=bad))


@group
async def brain_names_workspace(bench: Bench) -> None:
    """A brain must name the workspace of a session it creates."""
    id, workspace = bench.fresh("sesn"), bench.fresh("check")
    with refused(Reason.INVALID_FIELD):
        await bench.brain.CreateSession(pb.CreateSessionRequest(session_id=id))
    request = pb.CreateSessionRequest(session_id=id, workspace=workspace)
    made = (await bench.brain.CreateSession(request)).session
    equal("the workspace", made.workspace, workspace)


@group
async def operator_drivers_type(bench: Bench) -> None:
    """An operator may not begin a session with a driver's type, and nothing is created."""
    id = bench.fresh("sesn")
    events = [bench.event(), bench.event("agent.message")]
    with refused(Reason.EPOCH_REQUIRED):
        await bench.operator.CreateSession(pb.CreateSessionRequest(session_id=id, events=events))
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetSession(pb.GetSessionRequest(session_id=id))


@group
async def operator_inbox_types(bench: Bench) -> None:
    """An operator may begin a session with session.updated and with every inbox type."""
    types = ["session.updated", "user.message", "user.interrupt", "system.message", "hand.event"]
    types += ["hand.offered", "agent.thread_message_received"]
    made = await bench.session([bench.event(type) for type in types])
    equal("head", made.head.position, len(types))


@group
async def brain_any_type(bench: Bench) -> None:
    """A brain may begin a session with any type."""
    events = [bench.event("agent.message"), bench.event("hand.provisioned")]
    made = await bench.session(events, workspace=bench.fresh("check"))
    equal("head", made.head.position, 2)


@group
async def metadata_limit(bench: Bench) -> None:
    """Metadata of 4 KiB is taken, and one byte more is not."""
    fits = {"k": "v" * (MAP_BYTES - 1)}
    request = pb.CreateSessionRequest(session_id=bench.fresh("sesn"), metadata=fits)
    made = (await bench.operator.CreateSession(request)).session
    equal("metadata", dict(made.metadata), fits)
    over = pb.CreateSessionRequest(session_id=bench.fresh("sesn"), metadata={"k": "v" * MAP_BYTES})
    with refused(Reason.INVALID_FIELD):
        await bench.operator.CreateSession(over)


@group
async def events_at_creation_are_limited(bench: Bench) -> None:
    """A first event over 1 MiB is refused at creation too, and nothing is created."""
    id = bench.fresh("sesn")
    big = bench.event(data=bytes(2**20 + 1))
    with refused(Reason.EVENT_TOO_LARGE):
        await bench.operator.CreateSession(pb.CreateSessionRequest(session_id=id, events=[big]))
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetSession(pb.GetSessionRequest(session_id=id))


@group
async def unknown(bench: Bench) -> None:
    """A session that was never created is SESSION_NOT_FOUND to every RPC that names one."""
    id = bench.fresh("sesn")
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetSession(pb.GetSessionRequest(session_id=id))
    with refused(Reason.SESSION_NOT_FOUND):
        request = pb.UpdateSessionRequest(session_id=id, event_id=bench.fresh("sevt"), data=b"{}")
        await bench.operator.UpdateSession(request)
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=id))
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.emit(id, bench.event(), stub=bench.operator)
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.operator.GetEvents(pb.GetEventsRequest(session_id=id))
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.tail({id: 0}, stub=bench.operator).read()
    with refused(Reason.SESSION_NOT_FOUND):
        await bench.lease(id)


@group
async def updated_awake(bench: Bench) -> None:
    """An update that asks for a wake records it with its event; one that does not leaves it."""
    made = await bench.session(bench.events(2))
    update = pb.UpdateSessionRequest(session_id=made.session_id, event_id=bench.fresh("sevt"))
    info = (await bench.operator.UpdateSession(update)).session
    equal("wake and head", (info.wake, info.head.position), (0, 3))
    update = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), data=b'{"a":1}', wake=True
    )
    for _ in range(2):
        info = (await bench.operator.UpdateSession(update)).session
        equal("wake and head", (info.wake, info.head.position), (4, 4))


@group
async def first_events(bench: Bench) -> None:
    """GetSession gives as many of the first events as it is asked for."""
    events = bench.events(5)
    made = await bench.session(events)
    for count in (0, 1, 3, 9):
        request = pb.GetSessionRequest(session_id=made.session_id, first_events=count)
        ids = [event.id for event in (await bench.operator.GetSession(request)).events]
        equal(f"the first {count}", ids, [event.id for event in events[:count]])


@group
async def archived(bench: Bench) -> None:
    """An archived session takes no events, updates or leases, and stays readable."""
    made = await bench.session(bench.events(2))
    request = pb.ArchiveSessionRequest(session_id=made.session_id)
    first = (await bench.operator.ArchiveSession(request)).session
    must(first.HasField("archived"), "archived is not set")
    again = (await bench.operator.ArchiveSession(request)).session
    equal("archiving twice", again.archived, first.archived)
    with refused(Reason.SESSION_ARCHIVED):
        await bench.emit(made.session_id, bench.event(), stub=bench.operator)
    with refused(Reason.SESSION_ARCHIVED):
        update = pb.UpdateSessionRequest(session_id=made.session_id, event_id=bench.fresh("sevt"))
        await bench.operator.UpdateSession(update)
    with refused(Reason.SESSION_ARCHIVED):
        await bench.lease(made.session_id)
    equal("the log's length", len(await bench.log(made.session_id, bench.operator)), 2)


@group
async def archived_resend(bench: Bench) -> None:
    """What was appended before a session was archived is answered again, as the first time."""
    made = await bench.session()
    event = bench.event()
    first = await bench.emit(made.session_id, event, stub=bench.operator)
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=made.session_id))
    equal("again", await bench.emit(made.session_id, event, stub=bench.operator), first)


@group
async def archived_while_driven(bench: Bench) -> None:
    """A session that a brain drives is not archived until the lease ends."""
    made = await bench.session()
    held = await bench.lease(made.session_id)
    request = pb.ArchiveSessionRequest(session_id=made.session_id)
    with refused(Reason.LEASE_HELD):
        await bench.operator.ArchiveSession(request)
    await bench.release(made.session_id, held.lease.epoch)
    await bench.operator.ArchiveSession(request)
