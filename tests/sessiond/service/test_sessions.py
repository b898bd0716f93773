"""The session service over real mutual TLS: who may do what, and what is answered."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from carpal import signed
from carpal.client import rpc_errors
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from sessiond.clock import SECOND
from tests.sessiond.desk import refused
from tests.sessiond.serving import WAIT, Serving, event


async def create(sessions: Serving, session_id: str = "sesn_1", *, wake: bool = True) -> None:
    ada = await sessions.operator()
    await ada.CreateSession(
        pb.CreateSessionRequest(session_id=session_id, events=[event("e1")], wake=wake)
    )


async def ask(stub: Any, method: str, request: Any) -> Any:
    """One RPC, whose refusal is raised as what it is."""
    async with asyncio.timeout(WAIT):
        with rpc_errors("sessiond"):
            return await getattr(stub, method)(request)


async def first(stub: Any, method: str, request: Any) -> Any:
    """The first message of a stream, or its refusal."""
    async with asyncio.timeout(WAIT):
        with rpc_errors("sessiond"):
            return await anext(aiter(getattr(stub, method)(request)))


async def test_a_session_is_created_with_its_first_events_and_read_back(
    sessions: Serving,
) -> None:
    ada = await sessions.operator()
    request = pb.CreateSessionRequest(
        session_id="sesn_1",
        title="fix it",
        metadata={"a": "b"},
        labels={"team": "x"},
        events=[event("e1", "session.updated"), event("e2", data=b'{"x":1}')],
        wake=True,
    )
    created = (await ask(ada, "CreateSession", request)).session
    assert created.workspace == "default"
    assert (created.head.position, created.wake, created.processed) == (2, 2, 0)
    assert dict(created.metadata) == {"a": "b"}
    assert not created.HasField("lease")
    got = await ask(ada, "GetSession", pb.GetSessionRequest(session_id="sesn_1", first_events=9))
    assert got.session == created == (await ask(ada, "CreateSession", request)).session
    assert [(e.id, e.position, e.data) for e in got.events] == [
        ("e1", 1, b"{}"),
        ("e2", 2, b'{"x":1}'),
    ]
    assert {e.source for e in got.events} == {"spiffe://carpal.internal/operator/ada"}
    assert got.events[-1].hash == created.head.hash
    assert got.events[0].time.ToNanoseconds() == sessions.clock.wall()


async def test_a_brain_must_name_the_workspace_and_an_operator_has_one(sessions: Serving) -> None:
    brain, ada = await sessions.brain(), await sessions.operator()
    with refused(Reason.INVALID_FIELD):
        await ask(brain, "CreateSession", pb.CreateSessionRequest(session_id="s"))
    with refused(Reason.INVALID_FIELD):
        request = pb.CreateSessionRequest(session_id="s", workspace="elsewhere")
        await ask(ada, "CreateSession", request)
    made = await ask(
        brain, "CreateSession", pb.CreateSessionRequest(session_id="s", workspace="elsewhere")
    )
    assert made.session.workspace == "elsewhere"


async def test_to_another_workspace_a_session_does_not_exist(sessions: Serving) -> None:
    await create(sessions)
    eve = await sessions.operator("eve", "elsewhere")
    id = "sesn_1"
    for method, request in [
        ("GetSession", pb.GetSessionRequest(session_id=id)),
        ("UpdateSession", pb.UpdateSessionRequest(session_id=id, event_id="u")),
        ("ArchiveSession", pb.ArchiveSessionRequest(session_id=id)),
        ("EmitEvent", pb.EmitEventRequest(session_id=id, event=event("x"))),
        ("GetEvents", pb.GetEventsRequest(session_id=id)),
    ]:
        with refused(Reason.SESSION_NOT_FOUND):
            await ask(eve, method, request)
    with refused(Reason.SESSION_NOT_FOUND):
        cursors = [types_pb2.TailCursor(session_id=id)]
        await first(eve, "TailEvents", pb.TailEventsRequest(cursors=cursors))
    assert not (await ask(eve, "ListSessions", pb.ListSessionsRequest())).sessions
    await sessions.lease(id)
    leases = await first(eve, "WatchLeases", pb.WatchLeasesRequest(prefix="session/"))
    assert (leases.snapshot, len(leases.leases)) == (True, 0)


async def test_a_malformed_session_id_is_refused_by_name(sessions: Serving) -> None:
    ada = await sessions.operator()
    with refused(Reason.INVALID_FIELD) as error:
        await ask(ada, "CreateSession", pb.CreateSessionRequest(session_id="no/slash"))
    assert error.value.fields["field"] == "session_id"


async def test_one_event_is_emitted_and_answered_as_it_is_read(sessions: Serving) -> None:
    await create(sessions)
    ada = await sessions.operator()
    request = pb.EmitEventRequest(session_id="sesn_1", event=event("e2"), wake=True)
    emitted = (await ask(ada, "EmitEvent", request)).event
    assert emitted.position == 2
    assert emitted == (await ask(ada, "EmitEvent", request)).event
    read = await ask(ada, "GetEvents", pb.GetEventsRequest(session_id="sesn_1", after=1))
    assert list(read.events) == [emitted]
    with refused(Reason.EPOCH_REQUIRED):
        reply = pb.EmitEventRequest(session_id="sesn_1", event=event("e3", "agent.message"))
        await ask(ada, "EmitEvent", reply)


async def test_an_oversized_event_is_refused_in_words(sessions: Serving) -> None:
    await create(sessions)
    ada = await sessions.operator()
    big = event("big", data=bytes(2**20 + 1))
    with refused(Reason.EVENT_TOO_LARGE) as error:
        await ask(ada, "EmitEvent", pb.EmitEventRequest(session_id="sesn_1", event=big))
    assert "1048577 bytes; the limit is 1048576: put the data in a blob" in str(error.value)


async def test_a_title_is_kept_cleared_or_set_and_maps_are_patched(sessions: Serving) -> None:
    await create(sessions)
    ada = await sessions.operator()

    async def update(event_id: str, **fields: Any) -> types_pb2.SessionInfo:
        request = pb.UpdateSessionRequest(session_id="sesn_1", event_id=event_id, **fields)
        info: types_pb2.SessionInfo = (await ask(ada, "UpdateSession", request)).session
        return info

    assert (await update("u1", title="t", data=b"{}")).title == "t"
    assert (await update("u2", metadata={"k": "v"})).title == "t"
    assert (await update("u3", title="")).title == ""
    assert dict((await update("u4", metadata={"k": ""})).metadata) == {}


async def test_listing_is_by_page_and_archived_ones_are_asked_for(sessions: Serving) -> None:
    for number in range(3):
        await create(sessions, f"s{number}", wake=False)
    ada = await sessions.operator()
    await ask(ada, "ArchiveSession", pb.ArchiveSessionRequest(session_id="s1"))

    async def listed(**fields: Any) -> tuple[list[str], str]:
        answer = await ask(ada, "ListSessions", pb.ListSessionsRequest(**fields))
        return [info.session_id for info in answer.sessions], answer.next_page_token

    assert await listed() == (["s2", "s0"], "")
    assert await listed(include_archived=True) == (["s2", "s1", "s0"], "")
    ids, token = await listed(limit=1)
    assert (ids, await listed(limit=1, page_token=token)) == (["s2"], (["s0"], ""))


async def test_a_lease_comes_with_the_session_and_a_ticket_that_verifies(
    sessions: Serving,
) -> None:
    await create(sessions)
    held = await sessions.lease("sesn_1", term=5)
    assert held.lease.epoch == 1
    assert held.lease.holder == "spiffe://carpal.internal/brain/brain-1"
    assert held.lease.address == "brain-1:1"
    assert held.lease.workspace == "default"
    assert held.lease.expires_in.ToNanoseconds() == 5 * SECOND
    assert held.session.wake == 1
    assert held.session.lease == held.lease
    signer = signed.verify(held.ticket, sessions.pki.ca_pem, Role.SESSIOND, datetime.now(UTC))
    assert signer.uri == "spiffe://carpal.internal/sessiond/sessiond"
    ticket = types_pb2.LeaseTicket.FromString(held.ticket.payload)
    assert (ticket.resource, ticket.epoch, ticket.holder, ticket.workspace) == (
        "session/sesn_1",
        1,
        held.lease.holder,
        "default",
    )
    assert ticket.expires.ToNanoseconds() == sessions.clock.wall() + 5 * SECOND


async def agent_told(sessions: Serving, session_id: str, above: int | None = None) -> str:
    """The agent that the ticket of a session's lease says."""
    held = await sessions.lease(session_id, events_after=above)
    return str(types_pb2.LeaseTicket.FromString(held.ticket.payload).agent)


async def user_told(sessions: Serving, session_id: str) -> str:
    """The end user that the ticket of a session's lease says."""
    held = await sessions.lease(session_id)
    return str(types_pb2.LeaseTicket.FromString(held.ticket.payload).user)


async def test_a_ticket_says_the_user_that_an_operator_made_the_session_for_and_no_later_word(
    sessions: Serving,
) -> None:
    ada, brain = await sessions.operator(), await sessions.brain()
    alice = b'{"agent":{"name":"fixer"},"hands":{},"user":"alice@a.test"}'
    for session_id, data in (
        ("sesn_1", alice),
        ("sesn_2", b'{"agent":{"name":"fixer"}}'),
        ("sesn_3", b'{"user":"two words"}'),
    ):
        first = event(f"{session_id}-1", "session.updated", data)
        await ask(
            ada, "CreateSession", pb.CreateSessionRequest(session_id=session_id, events=[first])
        )
    its_own = event("sesn_4-1", "session.updated", alice)
    await ask(
        brain,
        "CreateSession",
        pb.CreateSessionRequest(session_id="sesn_4", workspace="default", events=[its_own]),
    )
    for session_id in ("sesn_1", "sesn_2"):
        later = pb.UpdateSessionRequest(
            session_id=session_id, event_id=f"{session_id}-2", data=b'{"user":"bob"}'
        )
        await ask(ada, "UpdateSession", later)
    told = [await user_told(sessions, f"sesn_{number}") for number in (1, 2, 3, 4)]
    assert told == ["alice@a.test", "", "", ""]


async def test_a_ticket_says_the_agent_that_an_operator_made_the_session_with(
    sessions: Serving,
) -> None:
    ada, brain = await sessions.operator(), await sessions.brain()
    fixer = b'{"agent":{"name":"fixer","version":2},"hands":{}}'
    made = {"sesn_1": fixer, "sesn_2": b"[1]", "sesn_3": b'{"agent":{"name":7}}'}
    for session_id, data in made.items():
        first = event(f"{session_id}-1", "session.updated", data)
        await ask(
            ada, "CreateSession", pb.CreateSessionRequest(session_id=session_id, events=[first])
        )
    its_own = event("sesn_4-1", "session.updated", fixer)
    await ask(
        brain,
        "CreateSession",
        pb.CreateSessionRequest(session_id="sesn_4", workspace="default", events=[its_own]),
    )
    later = pb.UpdateSessionRequest(
        session_id="sesn_1", event_id="sesn_1-2", data=b'{"agent":{"name":"admin"}}'
    )
    await ask(brain, "UpdateSession", later)
    told = [await agent_told(sessions, f"sesn_{each}") for each in (1, 2, 3, 4)]
    assert told == ["fixer", "", "", ""]
    for above in (0, 1, 2):  # whatever of the log comes along
        assert await agent_told(sessions, "sesn_1", above) == "fixer"


async def test_two_brains_race_for_a_lease_and_one_wins(sessions: Serving) -> None:
    await create(sessions)
    brains = [f"brain-{number}" for number in range(1, 5)]
    for brain in brains:
        await sessions.brain(brain)
    async with asyncio.timeout(WAIT):
        with rpc_errors("sessiond"):
            results = await asyncio.gather(
                *(sessions.lease("sesn_1", brain) for brain in brains), return_exceptions=True
            )
    won = [result for result in results if isinstance(result, pb.AcquireLeaseResponse)]
    assert len(won) == 1
    assert won[0].lease.epoch == 1


async def test_leases_are_renewed_many_at_a_time_each_answered_for_itself(
    sessions: Serving,
) -> None:
    await create(sessions, "s1")
    await create(sessions, "s2")
    await sessions.lease("s1", term=2)
    await sessions.lease("s2", term=8)
    await sessions.advance(4)
    refs = [
        types_pb2.LeaseRef(resource=f"session/{id}", epoch=epoch)
        for id, epoch in [("s1", 1), ("s2", 1), ("s2", 7), ("s3", 1)]
    ]
    brain = await sessions.brain()
    answer = await ask(brain, "RenewLease", pb.RenewLeaseRequest(leases=refs))
    assert [lease.resource for lease in answer.leases] == [ref.resource for ref in refs]
    assert [lease.HasField("status") for lease in answer.leases] == [True, False, True, True]
    assert answer.leases[1].expires_in.ToNanoseconds() == 8 * SECOND


async def test_a_released_session_says_what_was_processed_and_when_to_wake(
    sessions: Serving,
) -> None:
    await create(sessions)
    held = await sessions.lease("sesn_1")
    brain = await sessions.brain()
    request = pb.ReleaseLeaseRequest(resource="session/sesn_1", epoch=held.lease.epoch, processed=1)
    request.wake_at.FromNanoseconds(sessions.clock.wall() + 60 * SECOND)
    released = (await ask(brain, "ReleaseLease", request)).session
    assert released.processed == 1
    assert released.wake_at == request.wake_at
    assert released.lease.epoch == 1
    assert released.lease.holder == ""
    assert not released.lease.HasField("expires_in")


async def test_a_driver_that_dies_is_followed_by_another_with_a_higher_epoch_s06(
    sessions: Serving,
) -> None:
    await create(sessions)
    other = await sessions.brain("brain-2")
    watch = aiter(other.WatchRunnable(pb.WatchRunnableRequest()))
    async with asyncio.timeout(WAIT):
        assert [offer.attempts for offer in (await anext(watch)).sessions] == [0]
        await sessions.lease("sesn_1", "brain-1")
        await sessions.advance(10)
        offer = (await anext(watch)).sessions[0]
        assert (offer.session_id, offer.wake, offer.attempts) == ("sesn_1", 1, 1)
        assert (await sessions.lease("sesn_1", "brain-2")).lease.epoch == 2


async def test_a_wake_is_offered_as_it_is_committed(sessions: Serving) -> None:
    brain = await sessions.brain()
    watch = aiter(brain.WatchRunnable(pb.WatchRunnableRequest(workspaces=["default"])))
    async with asyncio.timeout(WAIT):
        assert not (await anext(watch)).sessions
        await create(sessions)
        assert [offer.session_id for offer in (await anext(watch)).sessions] == ["sesn_1"]
        held = await sessions.lease("sesn_1")
        done = pb.ReleaseLeaseRequest(
            resource="session/sesn_1", epoch=held.lease.epoch, processed=1
        )
        await ask(brain, "ReleaseLease", done)
        ada = await sessions.operator()
        await ask(
            ada,
            "EmitEvent",
            pb.EmitEventRequest(session_id="sesn_1", event=event("e2"), wake=True),
        )
        assert [offer.wake for offer in (await anext(watch)).sessions] == [2]


async def test_the_directory_of_leases_is_a_snapshot_and_then_changes(sessions: Serving) -> None:
    brain = await sessions.brain()
    name = pb.AcquireLeaseRequest(
        resource="brain/brain-1", address="b:1", attributes={"version": "1"}
    )
    await ask(brain, "AcquireLease", name)
    other = await sessions.brain("brain-2")
    watch = aiter(other.WatchLeases(pb.WatchLeasesRequest(prefix="brain/")))
    async with asyncio.timeout(WAIT):
        snapshot = await anext(watch)
        assert snapshot.snapshot
        assert [(row.resource, row.address) for row in snapshot.leases] == [
            ("brain/brain-1", "b:1")
        ]
        assert dict(snapshot.leases[0].attributes) == {"version": "1"}
        await ask(brain, "AcquireLease", pb.AcquireLeaseRequest(resource="daemon/d", workspace="w"))
        await sessions.advance(10)
        change = await anext(watch)
        assert not change.snapshot
        assert [(row.resource, row.holder) for row in change.leases] == [("brain/brain-1", "")]
        assert not change.leases[0].HasField("expires_in")


async def test_a_directory_larger_than_a_message_comes_in_several(sessions: Serving) -> None:
    brain = await sessions.brain()
    resources = [f"daemon/d{n}" for n in range(700)]

    async def acquire(resource: str) -> None:
        attributes = {"labels": "x" * 4000}
        request = pb.AcquireLeaseRequest(
            resource=resource, workspace="w", attributes=attributes, takeover=True
        )
        await ask(brain, "AcquireLease", request)

    await asyncio.gather(*map(acquire, resources))
    watch = aiter(brain.WatchLeases(pb.WatchLeasesRequest(prefix="daemon/")))
    async with asyncio.timeout(WAIT):
        parts = [await anext(watch)]
        while parts[-1].more:
            parts.append(await anext(watch))
        assert len(parts) == 3
        assert all(part.snapshot for part in parts)
        assert max(part.ByteSize() for part in parts) < 1024 * 1024 + 8192
        found = [row.resource for part in parts for row in part.leases]
        assert sorted(found) == sorted(resources)
        # And so do its changes, were they to happen at once.
        await asyncio.gather(*map(acquire, resources))
        changed: set[str] = set()
        while len(changed) < len(resources):
            change = await anext(watch)
            assert not change.snapshot
            assert not change.more
            changed |= {row.resource for row in change.leases}


@pytest.mark.parametrize("prefix", ["", "hand/", "brain", "session"])
async def test_a_malformed_prefix_is_refused(sessions: Serving, prefix: str) -> None:
    with refused(Reason.INVALID_FIELD):
        request = pb.WatchLeasesRequest(prefix=prefix)
        await first(await sessions.brain(), "WatchLeases", request)


async def test_an_operator_sees_its_workspaces_daemons_and_the_vault_sees_all(
    sessions: Serving,
) -> None:
    brain = await sessions.brain()
    for name, workspace in [("d1", "default"), ("d2", "elsewhere")]:
        request = pb.AcquireLeaseRequest(resource=f"daemon/{name}", workspace=workspace)
        await ask(brain, "AcquireLease", request)

    async def seen(stub: Any) -> list[str]:
        request = pb.WatchLeasesRequest(prefix="daemon/")
        return [row.resource for row in (await first(stub, "WatchLeases", request)).leases]

    assert await seen(await sessions.operator()) == ["daemon/d1"]
    assert await seen(await sessions.stub(Role.VAULT, "vault")) == ["daemon/d1", "daemon/d2"]


async def test_brains_are_found_from_every_workspace(sessions: Serving) -> None:
    request = pb.AcquireLeaseRequest(resource="brain/brain-1", address="b:1")
    await ask(await sessions.brain(), "AcquireLease", request)
    for workspace in ("default", "elsewhere"):
        operator = await sessions.operator(f"op-{workspace}", workspace)
        answer = await first(operator, "WatchLeases", pb.WatchLeasesRequest(prefix="brain/"))
        assert [row.address for row in answer.leases] == ["b:1"]


async def test_a_session_is_read_with_its_head_signed_when_that_is_asked(
    sessions: Serving,
) -> None:
    await create(sessions)
    ada = await sessions.operator()
    got = await ask(ada, "GetSession", pb.GetSessionRequest(session_id="sesn_1", sign_head=True))
    said = types_pb2.SignedHead.FromString(got.signed_head.payload)
    assert said.head == got.session.head
    assert said.chain_id == "sesn_1"
    signer = signed.verify(got.signed_head, sessions.pki.ca_pem, Role.SESSIOND, datetime.now(UTC))
    assert signer.name == "sessiond"
    plain = await ask(ada, "GetSession", pb.GetSessionRequest(session_id="sesn_1"))
    assert not plain.HasField("signed_head")


async def test_a_renewed_identity_signs_the_next_ticket(sessions: Serving) -> None:
    await create(sessions)
    before = (await sessions.lease("sesn_1")).ticket.certificate_chain
    sessions.pki.issue("sessiond", "sessiond")
    ticket = (await sessions.lease("sesn_1")).ticket
    assert ticket.certificate_chain != before
    signed.verify(ticket, sessions.pki.ca_pem, Role.SESSIOND, datetime.now(UTC))


@pytest.mark.parametrize("seconds", [-1, 2**40, 200_000_000_000])
async def test_a_time_to_wake_out_of_this_era_is_refused(sessions: Serving, seconds: int) -> None:
    await create(sessions)
    await sessions.lease("sesn_1")
    request = pb.ReleaseLeaseRequest(resource="session/sesn_1", epoch=1)
    request.wake_at.seconds = seconds
    with refused(Reason.INVALID_FIELD):
        await ask(await sessions.brain(), "ReleaseLease", request)


async def test_roles_are_held_apart(sessions: Serving) -> None:
    await create(sessions)
    ada = await sessions.operator()
    with refused(Reason.ROLE_NOT_ALLOWED):
        request = pb.AcquireLeaseRequest(resource="session/sesn_1")
        await ask(ada, "AcquireLease", request)
    with refused(Reason.ROLE_NOT_ALLOWED):
        await first(ada, "WatchRunnable", pb.WatchRunnableRequest())


async def test_streams_end_when_the_server_stops(sessions: Serving) -> None:
    brain = await sessions.brain()
    watch = aiter(brain.WatchRunnable(pb.WatchRunnableRequest()))
    async with asyncio.timeout(WAIT):
        await anext(watch)
        sessions.service.close_streams()
        with refused(Reason.UNAVAILABLE), rpc_errors("sessiond"):
            await anext(watch)
