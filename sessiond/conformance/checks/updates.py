"""A session's title, metadata and labels change, and the log says so."""

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.verdict import equal, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.checks.sessions import MAP_BYTES
from sessiond.conformance.group import Group

group = Group("sessions")


@group
async def update_appends(bench: Bench) -> None:
    """An update appends session.updated with its event id and its data, from an operator too."""
    made = await bench.session(bench.events(1))
    request = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), title="new", data=b'{"x":[1]}'
    )
    updated = (await bench.operator.UpdateSession(request)).session
    equal("title and head", (updated.title, updated.head.position), ("new", 2))
    event = (await bench.log(made.session_id, bench.operator))[-1]
    equal(
        "the event",
        (event.id, event.type, event.data, event.source),
        (request.event_id, "session.updated", request.data, bench.caller("operator").identity.uri),
    )


@group
async def title_absent(bench: Bench) -> None:
    """An absent title keeps what there is; an empty one clears it."""
    made = await bench.session(title="kept")
    keep = pb.UpdateSessionRequest(session_id=made.session_id, event_id=bench.fresh("sevt"))
    equal("absent", (await bench.operator.UpdateSession(keep)).session.title, "kept")
    clear = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), title=""
    )
    equal("empty", (await bench.operator.UpdateSession(clear)).session.title, "")


@group
async def maps_are_patched(bench: Bench) -> None:
    """Metadata and labels are patched by key, and an empty value removes its key."""
    id = bench.fresh("sesn")
    maps = {"a": "1", "b": "2"}
    await bench.operator.CreateSession(
        pb.CreateSessionRequest(session_id=id, metadata=maps, labels=maps)
    )
    patch = {"a": "", "b": "3", "c": "4"}
    request = pb.UpdateSessionRequest(
        session_id=id, event_id=bench.fresh("sevt"), metadata=patch, labels=patch
    )
    updated = (await bench.operator.UpdateSession(request)).session
    equal("metadata", dict(updated.metadata), {"b": "3", "c": "4"})
    equal("labels", dict(updated.labels), {"b": "3", "c": "4"})


@group
async def update_again(bench: Bench) -> None:
    """The same update again changes nothing, also when another came between."""
    made = await bench.session()
    one = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), title="one"
    )
    two = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), title="two"
    )
    await bench.operator.UpdateSession(one)
    await bench.operator.UpdateSession(two)
    await bench.operator.UpdateSession(one)
    request = pb.GetSessionRequest(session_id=made.session_id)
    now = (await bench.operator.GetSession(request)).session
    equal("title and head", (now.title, now.head.position), ("two", 2))


@group
async def update_id_reused(bench: Bench) -> None:
    """An event id that was used for another change, or another event, is refused as ID_REUSED."""
    event = bench.event()
    made = await bench.session([event])
    request = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), title="one"
    )
    await bench.operator.UpdateSession(request)
    request.title = "two"
    with refused(Reason.ID_REUSED):
        await bench.operator.UpdateSession(request)
    request.event_id = event.id
    with refused(Reason.ID_REUSED):
        await bench.operator.UpdateSession(request)


@group
async def update_limit(bench: Bench) -> None:
    """Metadata may not outgrow 4 KiB by patches, and data over 1 MiB is refused."""
    made = await bench.session()
    request = pb.UpdateSessionRequest(
        session_id=made.session_id,
        event_id=bench.fresh("sevt"),
        metadata={"a": "v" * (MAP_BYTES - 1)},
    )
    await bench.operator.UpdateSession(request)
    more = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), metadata={"b": "v"}
    )
    with refused(Reason.INVALID_FIELD):
        await bench.operator.UpdateSession(more)
    big = pb.UpdateSessionRequest(
        session_id=made.session_id, event_id=bench.fresh("sevt"), data=bytes(2**20 + 1)
    )
    with refused(Reason.EVENT_TOO_LARGE):
        await bench.operator.UpdateSession(big)
