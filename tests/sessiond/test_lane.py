"""The Append stream over real mutual TLS: pipelined, all or nothing, in order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import pytest

from carpal.client import rpc_errors
from carpal.errors import from_status, refuse
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from sessiond import lane
from sessiond.rows import Group
from sessiond.writer import Writer
from tests.sessiond.desk import Desk, identity, message, refused
from tests.sessiond.serving import WAIT, Serving, event


def group(
    sequence: int,
    session_id: str,
    *events: types_pb2.NewEvent,
    epoch: int | None = None,
    wake: bool = False,
) -> types_pb2.AppendGroup:
    return types_pb2.AppendGroup(
        sequence=sequence, session_id=session_id, events=events, epoch=epoch, wake=wake
    )


async def send(stub: Any, *frames: Sequence[types_pb2.AppendGroup]) -> list[types_pb2.AppendAck]:
    """The acks of a stream of these frames."""

    async def requests() -> AsyncIterator[pb.AppendRequest]:
        for groups in frames:
            yield pb.AppendRequest(groups=groups)

    async with asyncio.timeout(WAIT):
        return [ack async for response in stub.Append(requests()) for ack in response.acks]


@asynccontextmanager
async def stream(stub: Any) -> AsyncIterator[Any]:
    """An open stream; ended with the block."""
    call = stub.Append()
    try:
        yield call
    finally:
        call.cancel()


def reasons(acks: Sequence[types_pb2.AppendAck]) -> list[int | Reason]:
    """Each group's position, or why it was refused, in the order of sequences."""
    assert [ack.sequence for ack in acks] == list(range(1, len(acks) + 1))
    return [
        from_status(ack.status).reason if ack.HasField("status") else ack.position for ack in acks
    ]


@pytest.fixture
async def two(sessions: Serving) -> Serving:
    """With sessions sesn_1 and sesn_2, driven by brain-1 under epoch 1."""
    ada = await sessions.operator()
    for session_id in ("sesn_1", "sesn_2"):
        await ada.CreateSession(pb.CreateSessionRequest(session_id=session_id))
        await sessions.lease(session_id)
    return sessions


async def ids(sessions: Serving, session_id: str) -> list[str]:
    ada = await sessions.operator()
    return [e.id for e in (await ada.GetEvents(pb.GetEventsRequest(session_id=session_id))).events]


async def test_groups_are_acked_by_sequence_with_the_position_of_their_first_event(
    two: Serving,
) -> None:
    acks = await send(
        await two.brain(),
        [
            group(1, "sesn_1", event("a", "agent.message"), event("b", "agent.message"), epoch=1),
            group(2, "sesn_2", event("a", "agent.message"), epoch=1),
        ],
        [],
        [group(3, "sesn_1", event("c", "agent.message"), epoch=1)],
    )
    assert reasons(acks) == [1, 1, 3]
    assert await ids(two, "sesn_1") == ["a", "b", "c"]


async def test_after_a_refusal_later_groups_of_that_session_alone_are_refused(
    two: Serving,
) -> None:
    acks = await send(
        await two.brain(),
        [group(1, "sesn_1", event("a", "agent.message"), epoch=1)],
        [
            group(2, "sesn_1", event("b", "agent.message"), event("no", "agent.message"), epoch=9),
            group(3, "sesn_2", event("b", "agent.message"), epoch=1),
            group(4, "sesn_1", event("c", "agent.message"), epoch=1),
        ],
        [
            group(5, "sesn_1", event("d", "agent.message"), epoch=1),
            group(6, "sesn_2", event("c", "agent.message"), epoch=1),
        ],
    )
    stale, prior = Reason.STALE_EPOCH, Reason.PRIOR_GROUP_REFUSED
    assert reasons(acks) == [1, stale, 1, prior, prior, 2]
    assert await ids(two, "sesn_1") == ["a"]
    # A new stream begins anew.
    fresh = await send(
        await two.brain(), [group(1, "sesn_1", event("d", "agent.message"), epoch=1)]
    )
    assert reasons(fresh) == [2]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (group(1, "nowhere", event("a")), Reason.SESSION_NOT_FOUND),
        (group(1, "sesn_1"), Reason.INVALID_FIELD),
        (group(1, "sesn_1", event("")), Reason.INVALID_FIELD),
        (group(1, "sesn_1", event("a", "agent.message")), Reason.EPOCH_REQUIRED),
        (group(1, "sesn_1", event("a", data=bytes(2**20 + 1))), Reason.EVENT_TOO_LARGE),
        (group(1, "sesn_1", *(event(f"{n}") for n in range(1001))), Reason.GROUP_TOO_LARGE),
    ],
    ids=lambda value: str(value) if isinstance(value, Reason) else "",
)
async def test_each_refusal_is_said_in_the_groups_ack(
    two: Serving, bad: types_pb2.AppendGroup, reason: Reason
) -> None:
    acks = await send(await two.brain(), [bad, group(2, bad.session_id, event("z"))])
    assert reasons(acks) == [reason, Reason.PRIOR_GROUP_REFUSED]


async def test_a_resend_on_a_new_stream_lands_nothing_twice(two: Serving) -> None:
    frames = [[group(n, "sesn_1", event(f"e{n}", "agent.message"), epoch=1)] for n in range(1, 51)]
    first = await send(await two.brain(), *frames)
    assert first == await send(await two.brain(), *frames)
    assert await ids(two, "sesn_1") == [f"e{n}" for n in range(1, 51)]


async def test_an_operator_may_append_what_a_person_says_and_no_more(two: Serving) -> None:
    acks = await send(
        await two.operator(),
        [
            group(1, "sesn_1", event("a"), wake=True),
            group(2, "sesn_2", event("b", "agent.message")),
        ],
    )
    assert reasons(acks) == [1, Reason.EPOCH_REQUIRED]
    eve = await two.operator("eve", "elsewhere")
    assert reasons(await send(eve, [group(1, "sesn_1", event("x"))])) == [Reason.SESSION_NOT_FOUND]


async def test_a_sequence_out_of_turn_ends_the_stream_after_what_was_taken_is_acked(
    two: Serving,
) -> None:
    async with asyncio.timeout(WAIT), stream(await two.brain()) as call:
        await call.write(pb.AppendRequest(groups=[group(1, "sesn_1", event("a"))]))
        await call.write(pb.AppendRequest(groups=[group(3, "sesn_1", event("b"))]))
        assert [ack.sequence for ack in (await call.read()).acks] == [1]
        with refused(Reason.INVALID_FIELD):
            await _refused(call)
    assert await ids(two, "sesn_1") == ["a"]


async def test_acks_come_while_the_stream_stays_open(two: Serving) -> None:
    async with asyncio.timeout(WAIT), stream(await two.brain()) as call:
        for number in range(1, 6):
            await call.write(pb.AppendRequest(groups=[group(number, "sesn_1", event(f"{number}"))]))
            assert [ack.position for ack in (await call.read()).acks] == [number]


async def test_a_stopping_server_acks_what_it_took_and_ends_the_stream(two: Serving) -> None:
    async with asyncio.timeout(WAIT), stream(await two.brain()) as call:
        await call.write(pb.AppendRequest(groups=[group(1, "sesn_1", event("a"))]))
        assert [ack.sequence for ack in (await call.read()).acks] == [1]
        two.service.close_streams()
        with refused(Reason.UNAVAILABLE):
            await _refused(call)


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)  # a disk that is easily filled
async def test_a_full_disk_refuses_a_frame_and_closes_the_lanes_it_named(
    two: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = two.parts.writer._store
    pages = store._connection.raw.pragma("page_count")  # type: ignore[attr-defined]
    store._connection.raw.pragma("max_page_count", pages + 2)  # type: ignore[attr-defined]
    big = event("big", data=bytes(500_000))
    acks = await send(
        await two.brain(),
        [group(1, "sesn_1", big)],
        [group(2, "sesn_1", event("after")), group(3, "sesn_2", event("other"))],
    )
    assert reasons(acks) == [Reason.STORE_FULL, Reason.PRIOR_GROUP_REFUSED, 1]


async def test_a_client_that_does_not_read_its_acks_is_not_read_until_it_does(
    two: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "_UNREAD_ACKS", 3)
    taken = 0

    async def committed() -> None:
        await two.parts.writer.run(lambda tx: None)

    async def frames() -> AsyncIterator[pb.AppendRequest]:
        nonlocal taken
        while taken < 20:
            taken += 1
            yield pb.AppendRequest(groups=[group(taken, "sesn_1", event(f"e{taken}"))])
            await committed()

    async with asyncio.timeout(WAIT):
        served = lane.Lane(two.parts.writer, identity(Role.BRAIN, "brain-1")).serve(frames())
        acks = list((await anext(served)).acks)
        for _ in range(20):
            await committed()
        assert taken <= 6
        acks += [ack async for response in served for ack in response.acks]
    assert reasons(acks) == list(range(1, 21))


async def test_two_streams_at_once_leave_no_gap(two: Serving) -> None:
    frames = [
        [
            [group(n, "sesn_1", event(f"{who}{n}", data=b"x" * 100)) for n in range(k, k + 10)]
            for k in range(1, 200, 10)
        ]
        for who in "ab"
    ]
    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as tasks:
        sent = [
            tasks.create_task(send(await two.brain(name), *mine))
            for name, mine in zip(("brain-1", "brain-2"), frames, strict=True)
        ]
    positions = [ack.position for task in sent for ack in task.result()]
    assert sorted(positions) == list(range(1, 401))
    for task in sent:
        own = [ack.position for ack in task.result()]
        assert own == sorted(own)


async def _refused(call: Any) -> None:
    """Read until the stream fails, and raise why."""
    with rpc_errors("sessiond"):
        while await call.read() is not grpc.aio.EOF:
            pass


async def test_a_higher_epoch_starts_afresh_after_a_refusal(two: Serving) -> None:
    acks = await send(
        await two.brain(),
        [group(1, "sesn_1", event("a", "agent.message"), epoch=0)],
        [group(2, "sesn_1", event("b", "agent.message"), epoch=1)],
        [group(3, "sesn_1", event("c", "agent.message"), epoch=0)],
    )
    assert reasons(acks)[1] == 1, "the epoch that holds the lease is not held to an older one's"
    assert reasons(acks)[2] in (Reason.STALE_EPOCH, Reason.PRIOR_GROUP_REFUSED)


class Unsure:
    """A writer whose first job may be committed or not, and whose other two are."""

    def __init__(self) -> None:
        self._answers: list[Callable[[object], None]] = []

    async def submit(self, apply: object, answer: Callable[[object], None], *_: object) -> None:
        """See `Writer.submit`."""
        self._answers.append(answer)
        if len(self._answers) == 3:
            asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        first, *others = self._answers
        first(refuse(Reason.UNAVAILABLE, "the store does not answer"))
        for sequence, answer in enumerate(others, 2):
            answer([types_pb2.AppendAck(sequence=sequence)])


async def test_nothing_is_answered_after_a_group_whose_fate_is_unknown() -> None:
    """A driver told that the next one is refused would take it for the end, and not resend."""

    async def frames() -> AsyncIterator[pb.AppendRequest]:
        for sequence in (1, 2, 3):
            yield pb.AppendRequest(groups=[group(sequence, "sesn_1", event("a"))])

    writer = cast(Writer, Unsure())
    answers = lane.Lane(writer, identity(Role.BRAIN, "brain-1")).serve(frames())
    async with asyncio.timeout(WAIT):
        with refused(Reason.UNAVAILABLE):
            async for answer in answers:
                raise AssertionError(f"it answered {answer}")


def test_of_a_batch_that_runs_again_the_first_group_that_is_lost_by_then_closes_the_lane(
    desk: Desk,
) -> None:
    """At first the second is refused, since the first has its id; then the first gets nowhere."""
    desk.create()
    groups = [(n, Group("sesn_1", (message("a", b"%d" % n),))) for n in (1, 2)]
    served = lane.Lane(cast(Writer, Unsure()), identity(Role.BRAIN, "brain-1"))
    first, second = served._apply(groups, desk.store.begin())
    assert (first.position, from_status(second.status).reason) == (1, Reason.ID_REUSED)
    desk.store.rollback()
    served._undone(groups[:1])
    (second,) = desk.run(lambda tx: served._apply(groups[1:], tx))
    assert from_status(second.status).reason is Reason.PRIOR_GROUP_REFUSED
    assert desk.log() == []
