"""Tails: nothing skipped, nothing twice, nobody held up (invariant 7)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import grpc
import pytest

from carpal.client import dial
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub
from sessiond import tail as tail_module
from sessiond.parts import Parts, running
from sessiond.rows import Group, NewEvent
from sessiond.rules.append import append
from sessiond.rules.forks import NewFork, fork
from sessiond.rules.redaction import redact
from sessiond.rules.removal import delete
from sessiond.rules.sessions import NewSession, create
from sessiond.store import Transaction
from sessiond.tail import SLICE_BYTES, SLICE_EVENTS
from tests.pace import SCALE
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, BRAIN, EVE, SELF, Desk, message, refused
from tests.sessiond.serving import Serving
from tests.sessiond.test_deadlines import NotClosed

WAIT = 20.0 * SCALE


@pytest.fixture
async def parts(desk: Desk, clock: FakeClock) -> AsyncIterator[Parts]:
    desk.create("sesn_1")
    desk.create("sesn_2")
    async with running(NotClosed(desk.store), SELF) as parts:  # type: ignore[arg-type]
        yield parts


def request(*sessions: str, after: int = 0, types: Sequence[str] = ()) -> pb.TailEventsRequest:
    cursors = [types_pb2.TailCursor(session_id=session, after=after) for session in sessions]
    return pb.TailEventsRequest(cursors=cursors, types=types)


async def say(parts: Parts, session_id: str, *events: NewEvent) -> None:
    await parts.writer.run(lambda tx: append(tx, ADA, Group(session_id, events)))


async def until(
    tail: AsyncIterator[pb.TailEventsResponse], heads: dict[str, int]
) -> dict[str, list[int]]:
    """Positions by session, until each session's last was sent."""
    seen: dict[str, list[int]] = {session: [] for session in heads}
    async with asyncio.timeout(WAIT):
        while any(not seen[session] or seen[session][-1] < head for session, head in heads.items()):
            response = await anext(tail)
            seen[response.session_id] += [event.position for event in response.events]
    return seen


async def test_a_tail_of_many_sessions_that_stands_still_keeps_the_events_of_a_few(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "_FRESH_SESSIONS", 3)
    names = [f"many_{number}" for number in range(10)]
    for name in names:
        new = NewSession(name, "default", "", {}, {}, (), False, b"r")
        await parts.writer.run(lambda tx, new=new: create(tx, ADA, new))  # type: ignore[misc]
    tail = parts.tails.tail(ADA, request(*names))
    async with asyncio.timeout(WAIT):
        for _ in names:
            assert (await anext(tail)).live
        for k in range(2):
            for name in names:
                await say(parts, name, message(f"{k}"))
        await parts.writer.run(lambda tx: None)
        (marks,) = parts.tails._by_session[names[0]]
        assert [bool(marks.get(name)) for name in names] == [True] * 3 + [False] * 7
    heads = dict.fromkeys(names, 2)
    assert await until(tail, heads) == {name: [1, 2] for name in names}


async def test_what_is_appended_while_it_is_replayed_comes_once_and_in_order(
    parts: Parts,
) -> None:
    async def appending(session_id: str) -> None:
        for number in range(300):
            events = [message(f"{number}.{k}", b"x" * 2000) for k in range(1 + number % 7)]
            await say(parts, session_id, *events)

    count = sum(1 + number % 7 for number in range(300))
    heads = {"sesn_1": count, "sesn_2": count}
    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        for session in heads:
            group.create_task(appending(session))
        early = group.create_task(until(parts.tails.tail(BRAIN, request(*heads)), heads))
        while (await parts.readers.run(lambda r: r.session("sesn_1")))[0].head < 300:  # type: ignore[index]
            pass
        late = group.create_task(until(parts.tails.tail(ADA, request(*heads)), heads))
    expected = {session: list(range(1, count + 1)) for session in heads}
    assert early.result() == late.result() == expected


async def test_a_tail_says_when_it_is_live(parts: Parts) -> None:
    await say(parts, "sesn_1", *(message(str(n)) for n in range(SLICE_EVENTS)))
    await say(parts, "sesn_1", message("last"))
    tail = parts.tails.tail(ADA, request("sesn_1"))
    async with asyncio.timeout(WAIT):
        first, second = await anext(tail), await anext(tail)
        assert (len(first.events), first.live) == (SLICE_EVENTS, False)
        assert (len(second.events), second.live, second.head) == (1, True, SLICE_EVENTS + 1)
        await say(parts, "sesn_1", message("live"))
        third = await anext(tail)
        assert [event.id for event in third.events] == ["live"]
        assert third.live


async def test_a_tail_of_an_empty_log_is_live_at_once_and_resumes_after_its_cursor(
    parts: Parts,
) -> None:
    empty = parts.tails.tail(ADA, request("sesn_1"))
    async with asyncio.timeout(WAIT):
        response = await anext(empty)
        assert (len(response.events), response.live, response.head) == (0, True, 0)
        await say(parts, "sesn_1", message("a"), message("b"), message("c"))
        resumed = await anext(parts.tails.tail(ADA, request("sesn_1", after=2)))
        assert [event.id for event in resumed.events] == ["c"]


async def test_types_are_chosen_by_name_or_prefix(parts: Parts) -> None:
    tail = parts.tails.tail(ADA, request("sesn_1", types=["user.*", "hand.event"]))
    async with asyncio.timeout(WAIT):
        assert (await anext(tail)).live
        for number, type in enumerate(
            ["system.message", "user.message", "hand.offered", "hand.event", "user.interrupt"]
        ):
            await say(parts, "sesn_1", NewEvent(str(number), type, b""))
        types: list[str] = []
        while len(types) < 3:
            types += [event.type for event in (await anext(tail)).events]
    assert types == ["user.message", "hand.event", "user.interrupt"]


async def test_a_tail_that_is_not_read_holds_up_no_writer_and_misses_nothing(
    parts: Parts,
) -> None:
    slow = parts.tails.tail(ADA, request("sesn_1"))
    async with asyncio.timeout(WAIT):
        await anext(slow)
        for number in range(50):
            await say(parts, "sesn_1", message(str(number), bytes(200_000)))
        seen = await until(slow, {"sesn_1": 50})
    assert seen == {"sesn_1": list(range(1, 51))}


async def test_large_events_come_in_bounded_messages_and_sessions_take_turns(
    parts: Parts,
) -> None:
    for session in ("sesn_1", "sesn_2"):
        for number in range(6):
            await say(parts, session, message(str(number), bytes(SLICE_BYTES // 2)))
    tail = parts.tails.tail(ADA, request("sesn_1", "sesn_2"))
    async with asyncio.timeout(WAIT):
        responses = [await anext(tail) for _ in range(4)]
    assert [r.session_id for r in responses] == ["sesn_1", "sesn_2"] * 2
    assert [len(r.events) for r in responses] == [2] * 4


async def test_what_the_caller_may_not_see_is_not_found(parts: Parts) -> None:
    for who, sessions in [(EVE, ["sesn_1"]), (ADA, ["sesn_1", "nowhere"])]:
        with refused(Reason.SESSION_NOT_FOUND):
            await anext(parts.tails.tail(who, request(*sessions)))
    for sessions in ([], ["sesn_1", "sesn_1"], [f"s{n}" for n in range(1001)]):
        with refused(Reason.INVALID_FIELD):
            await anext(parts.tails.tail(ADA, request(*sessions)))


async def test_a_stopping_server_ends_its_tails_and_forgets_those_that_left(parts: Parts) -> None:
    tail, gone = (parts.tails.tail(ADA, request("sesn_1")) for _ in range(2))
    async with asyncio.timeout(WAIT):
        await anext(tail)
        await anext(gone)
        await gone.aclose()  # type: ignore[attr-defined]
        assert len(parts.tails._by_session["sesn_1"]) == 1
        parts.close_streams()
        with refused(Reason.UNAVAILABLE):
            await anext(tail)
        with refused(Reason.UNAVAILABLE):
            await anext(parts.tails.tail(ADA, request("sesn_1")))
    assert parts.tails._by_session == {}


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)
async def test_a_live_tail_costs_the_store_nothing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = parts.tails.tail(ADA, request("sesn_1"))
    async with asyncio.timeout(WAIT):
        assert (await anext(tail)).live
        monkeypatch.setattr(parts.tails, "_readers", None)
        for number in range(1, 4):
            await say(parts, "sesn_1", message(str(number)))
            response = await anext(tail)
            assert ([e.position for e in response.events], response.live) == ([number], True)


async def test_a_tail_that_misses_what_another_process_appended_reads_it(
    parts: Parts, desk: Desk
) -> None:
    tail = parts.tails.tail(ADA, request("sesn_1"))
    async with asyncio.timeout(WAIT):
        assert (await anext(tail)).live
        # As if another process had done it: nobody here was told.
        monitor, parts.writer._listeners[:] = list(parts.writer._listeners), []
        await say(parts, "sesn_1", message("elsewhere"))
        parts.writer._listeners[:] = monitor
        await say(parts, "sesn_1", message("here"))
        assert await until(tail, {"sesn_1": 2}) == {"sesn_1": [1, 2]}


async def test_a_cursor_beyond_the_head_is_told_so_rather_than_left_to_skip(parts: Parts) -> None:
    await say(parts, "sesn_1", message("a"))
    with refused(Reason.POSITION_BEYOND_HEAD) as error:
        await anext(parts.tails.tail(ADA, request("sesn_1", after=2)))
    assert "the log of sesn_1 ends at 1, before 2: read it anew" in str(error.value)
    assert (await anext(parts.tails.tail(ADA, request("sesn_1", after=1)))).live


async def test_what_is_redacted_while_a_tail_is_behind_comes_without_its_data(
    parts: Parts,
) -> None:
    tail = aiter(parts.tails.tail(BRAIN, request("sesn_1", "sesn_2")))
    async with asyncio.timeout(WAIT):
        assert {(await anext(tail)).session_id for _ in range(2)} == {"sesn_1", "sesn_2"}
        await say(parts, "sesn_1", message("a", b"a secret"))
        await parts.writer.run(lambda tx: fork(tx, ADA, NewFork("sesn_1", 1, "f", "", b"r")))
        await parts.writer.run(lambda tx: redact(tx, ADA, "f", 1, "it was one"))
        (event,) = (await anext(tail)).events
        assert (event.id, event.data) == ("a", b"")
        assert event.redaction.reason == "it was one"


async def test_a_tail_ends_also_when_the_deletion_came_with_an_append(parts: Parts) -> None:
    def both(tx: Transaction) -> None:
        append(tx, ADA, Group("sesn_1", (message("a"),)))
        delete(tx, ADA, "sesn_1")

    tail = aiter(parts.tails.tail(BRAIN, request("sesn_1")))
    async with asyncio.timeout(WAIT):
        assert (await anext(tail)).live
        await parts.writer.run(both)
        with refused(Reason.SESSION_NOT_FOUND):
            await anext(tail)


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)
async def test_of_a_burst_of_tails_none_is_cancelled_by_the_server(sessions: Serving) -> None:
    files = sessions.pki.issue(Role.BRAIN, "many")
    ask = request("sesn_1")
    await (await sessions.brain()).CreateSession(
        pb.CreateSessionRequest(session_id="sesn_1", workspace="default"), timeout=WAIT
    )
    async with AsyncExitStack() as stack:
        stubs = [
            SessionStub(
                await stack.enter_async_context(dial(sessions.address, Role.SESSIOND, files))
            )
            for _ in range(20)
        ]
        tails = [stub.TailEvents(ask, timeout=WAIT) for stub in stubs for _ in range(100)]
        codes: set[grpc.StatusCode] = set()

        async def first(
            tail: "grpc.aio.UnaryStreamCall[pb.TailEventsRequest, pb.TailEventsResponse]",
        ) -> None:
            try:
                await tail.read()
            except grpc.aio.AioRpcError as error:
                codes.add(error.code())

        await asyncio.gather(*(first(tail) for tail in tails))
        for tail in tails:
            tail.cancel()
        await asyncio.gather(*(tail.code() for tail in tails))
        async with asyncio.timeout(WAIT):
            while sessions.parts.tails._by_session:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)  # until the server has noticed, one by one
    assert grpc.StatusCode.CANCELLED not in codes
