"""Forks, imports, redactions and deletions over real mutual TLS."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from carpal.client import rpc_errors
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verified import Verified
from sessiond.service.leases import FIRST_BYTES, FIRST_EVENTS
from tests.sessiond.desk import refused
from tests.sessiond.service.test_sessions import ask, create, first
from tests.sessiond.serving import WAIT, Serving, event


async def events_of(sessions: Serving, session_id: str) -> list[types_pb2.Event]:
    ada = await sessions.operator()
    request = pb.GetEventsRequest(session_id=session_id, limit=1000)
    return list((await ask(ada, "GetEvents", request)).events)


async def info_of(sessions: Serving, session_id: str) -> types_pb2.SessionInfo:
    ada = await sessions.operator()
    answer: pb.GetSessionResponse = await ask(
        ada, "GetSession", pb.GetSessionRequest(session_id=session_id)
    )
    return answer.session


async def bring(
    sessions: Serving,
    *messages: pb.ImportSessionRequest,
    who: Any = None,
) -> types_pb2.SessionInfo:
    """One import stream."""
    who = who or await sessions.operator()

    async def requests() -> Any:
        for message in messages:
            yield message

    async with asyncio.timeout(WAIT):
        with rpc_errors("sessiond"):
            answer: pb.ImportSessionResponse = await who.ImportSession(requests())
    return answer.session


def frames(
    info: types_pb2.SessionInfo, events: Sequence[types_pb2.Event], size: int, as_id: str
) -> list[pb.ImportSessionRequest]:
    """An export as an importer sends it."""
    head = types_pb2.SessionInfo()
    head.CopyFrom(info)
    head.session_id = as_id
    return [
        pb.ImportSessionRequest(session=head),
        *(
            pb.ImportSessionRequest(events=events[start : start + size])
            for start in range(0, len(events), size)
        ),
    ]


@pytest.fixture
async def five(sessions: Serving) -> Serving:
    """A session of five events, woken."""
    await create(sessions)
    ada = await sessions.operator()
    for number in range(2, 6):
        request = pb.EmitEventRequest(session_id="sesn_1", event=event(f"e{number}"))
        await ask(ada, "EmitEvent", request)
    return sessions


async def test_a_fork_is_a_session_with_the_prefix_and_says_of_whom(five: Serving) -> None:
    ada = await five.operator()
    request = pb.ForkSessionRequest(
        source_session_id="sesn_1", position=3, session_id="f", title="again"
    )
    made = (await ask(ada, "ForkSession", request)).session
    assert (made.forked_from, made.forked_at, made.title) == ("sesn_1", 3, "again")
    assert (made.chain_id, made.wake, made.processed) == ("sesn_1", 0, 3)
    assert made == (await ask(ada, "ForkSession", request)).session == await info_of(five, "f")
    assert await events_of(five, "f") == (await events_of(five, "sesn_1"))[:3]
    log = Verified(made.chain_id)
    for one in await events_of(five, "f"):
        log.take(one)
    log.end(made.head)
    listed = await ask(ada, "ListSessions", pb.ListSessionsRequest())
    assert [info.session_id for info in listed.sessions] == ["f", "sesn_1"]


async def test_a_fork_to_another_workspace_or_beyond_the_head_is_refused(five: Serving) -> None:
    eve, ada = await five.operator("eve", "elsewhere"), await five.operator()
    request = pb.ForkSessionRequest(source_session_id="sesn_1", position=1, session_id="f")
    with refused(Reason.SESSION_NOT_FOUND):
        await ask(eve, "ForkSession", request)
    request.position = 6
    with refused(Reason.POSITION_BEYOND_HEAD):
        await ask(ada, "ForkSession", request)
    request.position = 2**64 - 1
    with refused(Reason.POSITION_BEYOND_HEAD):
        await ask(ada, "ForkSession", request)


async def test_a_tail_of_a_fork_replays_what_is_shared_and_goes_on(five: Serving) -> None:
    ada = await five.operator()
    await ask(
        ada,
        "ForkSession",
        pb.ForkSessionRequest(source_session_id="sesn_1", position=2, session_id="f"),
    )
    cursors = [types_pb2.TailCursor(session_id="f", after=1)]
    tail = aiter(ada.TailEvents(pb.TailEventsRequest(cursors=cursors)))
    async with asyncio.timeout(WAIT):
        assert [e.id for e in (await anext(tail)).events] == ["e2"]
        await ask(ada, "EmitEvent", pb.EmitEventRequest(session_id="f", event=event("x")))
        assert [(e.id, e.position) for e in (await anext(tail)).events] == [("x", 3)]


async def test_a_redacted_event_is_answered_and_read_without_its_data(five: Serving) -> None:
    ada, eve = await five.operator(), await five.operator("eve", "elsewhere")
    request = pb.RedactEventRequest(session_id="sesn_1", position=2, reason="a key in it")
    with refused(Reason.SESSION_NOT_FOUND):
        await ask(eve, "RedactEvent", request)
    five.clock.advance(1)
    redacted = (await ask(ada, "RedactEvent", request)).event
    assert redacted.data == b""
    assert redacted.redaction.by == "spiffe://carpal.internal/operator/ada"
    assert redacted.redaction.reason == "a key in it"
    assert redacted.redaction.time.ToNanoseconds() == five.clock.wall()
    assert (await events_of(five, "sesn_1"))[1] == redacted
    assert (await ask(ada, "RedactEvent", request)).event == redacted
    brain = await five.brain()
    with refused(Reason.ROLE_NOT_ALLOWED):
        await ask(brain, "RedactEvent", request)
    for position in (0, 6, 2**64 - 1):
        request.position = position
        with refused(Reason.SESSION_NOT_FOUND):
            await ask(ada, "RedactEvent", request)


async def test_a_tail_of_a_session_that_is_deleted_ends_with_that(five: Serving) -> None:
    ada = await five.operator()
    cursors = [types_pb2.TailCursor(session_id="sesn_1")]
    tail = aiter(ada.TailEvents(pb.TailEventsRequest(cursors=cursors)))
    async with asyncio.timeout(WAIT):
        assert (await anext(tail)).live
        await ask(ada, "DeleteSession", pb.DeleteSessionRequest(session_id="sesn_1"))
        with refused(Reason.SESSION_NOT_FOUND), rpc_errors("sessiond"):
            await anext(tail)


async def test_a_deleted_session_is_offered_no_more(five: Serving) -> None:
    ada, brain = await five.operator(), await five.brain()
    assert (await first(brain, "WatchRunnable", pb.WatchRunnableRequest())).sessions
    for _ in range(2):
        await ask(ada, "DeleteSession", pb.DeleteSessionRequest(session_id="sesn_1"))
    assert not (await first(brain, "WatchRunnable", pb.WatchRunnableRequest())).sessions
    assert not (await ask(ada, "ListSessions", pb.ListSessionsRequest())).sessions
    with refused(Reason.SESSION_NOT_FOUND):
        await info_of(five, "sesn_1")
    with refused(Reason.ID_REUSED):
        await ask(ada, "CreateSession", pb.CreateSessionRequest(session_id="sesn_1"))


async def test_a_driven_or_another_workspaces_session_is_not_deleted(five: Serving) -> None:
    ada, eve = await five.operator(), await five.operator("eve", "elsewhere")
    request = pb.DeleteSessionRequest(session_id="sesn_1")
    with refused(Reason.SESSION_NOT_FOUND):
        await ask(eve, "DeleteSession", request)
    await five.lease("sesn_1")
    with refused(Reason.LEASE_HELD):
        await ask(ada, "DeleteSession", request)
    await five.advance(11)
    await ask(ada, "DeleteSession", request)


async def test_an_export_is_imported_elsewhere_as_it_was(five: Serving) -> None:
    ada, eve = await five.operator(), await five.operator("eve", "elsewhere")
    await ask(
        ada, "RedactEvent", pb.RedactEventRequest(session_id="sesn_1", position=2, reason="r")
    )
    info, events = await info_of(five, "sesn_1"), await events_of(five, "sesn_1")
    five.clock.advance(60)
    made = await bring(five, *frames(info, events, 2, "sesn_2"), who=eve)
    assert (made.workspace, made.chain_id, made.imported_to) == ("elsewhere", "sesn_1", 5)
    assert (made.head, made.created, made.wake, made.processed) == (info.head, info.created, 0, 5)
    request = pb.GetEventsRequest(session_id="sesn_2", limit=1000)
    assert list((await ask(eve, "GetEvents", request)).events) == events
    assert await bring(five, *frames(info, events, 3, "sesn_2"), who=eve) == made
    with refused(Reason.ID_REUSED):
        await bring(five, *frames(info, events, 3, "sesn_2"), who=ada)


async def test_an_import_that_breaks_off_is_not_there_until_it_is_sent_again(
    five: Serving,
) -> None:
    info, events = await info_of(five, "sesn_1"), await events_of(five, "sesn_1")
    messages = frames(info, events, 2, "sesn_2")
    with refused(Reason.CHAIN_BROKEN):
        await bring(five, *messages[:2])
    with refused(Reason.SESSION_NOT_FOUND):
        await info_of(five, "sesn_2")
    assert (await bring(five, *messages)).head == info.head
    assert await events_of(five, "sesn_2") == events


async def test_an_import_must_begin_with_a_session_and_name_no_other(five: Serving) -> None:
    info, events = await info_of(five, "sesn_1"), await events_of(five, "sesn_1")
    messages = frames(info, events, 5, "sesn_2")
    for wrong in ([], messages[1:], [messages[0], messages[0]]):
        with refused(Reason.INVALID_FIELD) as error:
            await bring(five, *wrong)
        assert error.value.fields["field"] == "session"
    with refused(Reason.ROLE_NOT_ALLOWED):
        await bring(five, *messages, who=await five.brain())


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("type", "No Type"),
        ("id", ""),
        ("source", ""),
        ("hash", b"x"),
        ("data_digest", b""),
        ("data", bytes(2**20 + 1)),
    ],
)
async def test_an_imported_event_has_to_be_what_an_appended_one_is(
    five: Serving, field: str, wrong: Any
) -> None:
    info, events = await info_of(five, "sesn_1"), await events_of(five, "sesn_1")
    setattr(events[0], field, wrong)
    reason = Reason.EVENT_TOO_LARGE if field == "data" else Reason.INVALID_FIELD
    with refused(reason):
        await bring(five, *frames(info, events, 1, "sesn_2"))


async def test_listing_by_labels_is_by_page_and_all_must_match(sessions: Serving) -> None:
    ada = await sessions.operator()
    for number in range(6):
        labels = {"team": "x" if number % 2 else "y", "tier": str(number // 3)}
        request = pb.CreateSessionRequest(session_id=f"s{number}", labels=labels)
        await ask(ada, "CreateSession", request)

    async def listed(token: str = "", limit: int = 0, **labels: str) -> tuple[list[str], str]:
        request = pb.ListSessionsRequest(labels=labels, limit=limit, page_token=token)
        answer = await ask(ada, "ListSessions", request)
        return [info.session_id for info in answer.sessions], answer.next_page_token

    assert await listed(team="x") == (["s5", "s3", "s1"], "")
    assert await listed(team="x", tier="1") == (["s5", "s3"], "")
    assert await listed(team="z") == ([], "")
    assert await listed(tier="x") == ([], "")
    ids, token = await listed(limit=2, team="x")
    assert ids == ["s5", "s3"]
    assert await listed(token, limit=2, team="x") == (["s1"], "")
    with refused(Reason.INVALID_FIELD):
        await listed(token, limit=2, team="y")
    change = pb.UpdateSessionRequest(session_id="s5", event_id="u", labels={"team": "y"})
    await ask(ada, "UpdateSession", change)
    await ask(ada, "DeleteSession", pb.DeleteSessionRequest(session_id="s3"))
    assert await listed(team="x") == (["s1"], "")
    assert await listed(team="y") == (["s5", "s4", "s2", "s0"], "")


async def held(sessions: Serving, session_id: str, after: int | None) -> pb.AcquireLeaseResponse:
    """A lease that is given up at once, and what came with it."""
    answer = await sessions.lease(session_id, events_after=after)
    release = pb.ReleaseLeaseRequest(
        resource=answer.lease.resource,
        epoch=answer.lease.epoch,
        processed=answer.session.head.position,
    )
    await ask(await sessions.brain(), "ReleaseLease", release)
    return answer


async def test_a_lease_comes_with_what_the_log_has_above_a_position(five: Serving) -> None:
    log = await events_of(five, "sesn_1")
    for after in (0, 3, 5):
        told = await held(five, "sesn_1", after)
        assert list(told.events) == log[after:]
        assert (told.events_whole, told.redacted) == (True, 0)
    unasked = await held(five, "sesn_1", None)
    assert (list(unasked.events), unasked.events_whole) == ([], False)
    beyond = await held(five, "sesn_1", 99)
    assert (list(beyond.events), beyond.events_whole) == ([], False)


async def test_a_log_that_is_long_or_large_does_not_come_with_the_lease(five: Serving) -> None:
    large = b'{"x": "' + b"x" * FIRST_BYTES + b'"}'
    ada = await five.operator()
    update = pb.EmitEventRequest(session_id="sesn_1", event=event("large", data=large))
    await ask(ada, "EmitEvent", update)
    for after, whole in ((0, False), (5, False), (6, True)):
        assert (await held(five, "sesn_1", after)).events_whole == whole
    events = [event(f"n{number}") for number in range(FIRST_EVENTS + 1)]
    await ask(ada, "CreateSession", pb.CreateSessionRequest(session_id="long", events=events))
    for after, count in ((0, 0), (1, FIRST_EVENTS), (FIRST_EVENTS + 1, 0)):
        told = await held(five, "long", after)
        assert (told.events_whole, len(told.events)) == (after > 0, count)


async def test_a_lease_tells_how_much_of_the_log_is_redacted_of_a_fork_too(five: Serving) -> None:
    ada = await five.operator()
    fork = pb.ForkSessionRequest(source_session_id="sesn_1", position=3, session_id="fork")
    await ask(ada, "ForkSession", fork)

    async def told() -> tuple[int, int, int]:
        ends = [await five.lease("sesn_1", events_after=after) for after in (0, 5)]
        return (
            ends[0].redacted,
            ends[1].redacted,
            (await five.lease("fork", events_after=3)).redacted,
        )

    assert await told() == (0, 0, 0)
    for position, expected in ((2, (1, 1, 1)), (2, (1, 1, 1)), (4, (2, 2, 1))):
        redact = pb.RedactEventRequest(session_id="sesn_1", position=position, reason="a secret")
        await ask(ada, "RedactEvent", redact)
        assert await told() == expected
