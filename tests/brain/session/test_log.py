"""Appends are durable or refused, whatever becomes of the stream; a tail goes on where it was."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from brain.session.entries import New
from brain.session.leases import LeaseKeeper
from brain.session.log import EVENT_BYTES, Appender, entry_of, tail
from brain.session.transcript import Transcript
from carpal.errors import CarpalError, refuse, to_status
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2
from sessiond.store import StoreFull
from tests.brain.stage import WAIT, create
from tests.sessiond.serving import Serving

HI = New("agent.message", {"content": []})


class Cut:
    """A stub whose first stream a test cuts; those after it are whole."""

    def __init__(self, stub: Any, *, deaf: bool = False) -> None:
        """`deaf`: what the server answers on the first one is not heard."""
        self._stub = stub
        self._deaf = deaf
        self._streams = 0
        self.answered = asyncio.Event()
        self.cut = asyncio.Event()

    def Append(self) -> Any:
        """See the session service."""
        return self._first(self._stub.Append())

    def TailEvents(self, request: Any) -> Any:
        """See the session service."""
        return self._first(self._stub.TailEvents(request))

    def _first(self, stream: Any) -> Any:
        self._streams += 1
        return _Cuttable(stream, self) if self._streams == 1 else stream

    async def answers(self, stream: Any) -> AsyncIterator[Any]:
        """Until the cut."""
        reading = asyncio.create_task(stream.read())
        cutting = asyncio.create_task(self.cut.wait())
        while not self.cut.is_set():
            await asyncio.wait({reading, cutting}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                self.answered.set()
                if not self._deaf:
                    yield reading.result()
                reading = asyncio.create_task(stream.read())
        reading.cancel()
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "cut")


class _Cuttable:
    def __init__(self, stream: Any, cut: Cut) -> None:
        self._stream = stream
        self._cut = cut

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._cut.answers(self._stream)


@asynccontextmanager
async def appending(stub: Any) -> AsyncIterator[Appender]:
    """An appender that runs."""
    appender = Appender(stub)
    running = asyncio.create_task(appender.run())
    try:
        async with asyncio.timeout(WAIT):
            yield appender
    finally:
        running.cancel()
        await asyncio.wait({running})


async def lease(sessions: Serving) -> int:
    """Create `sesn_1` and drive it; the epoch."""
    await create(sessions)
    return (await sessions.lease("sesn_1")).lease.epoch


async def kinds(sessions: Serving) -> list[str]:
    """Types of the log's events."""
    request = session_pb2.GetEventsRequest(session_id="sesn_1", limit=1000)
    return [e.type for e in (await (await sessions.brain()).GetEvents(request)).events]


async def test_a_group_is_appended_whole_and_its_last_position_is_given(sessions: Serving) -> None:
    epoch = await lease(sessions)
    async with appending(await sessions.brain()) as appender:
        assert await appender.append("sesn_1", [HI, HI], epoch) == 4
        assert await appender.append("sesn_1", [HI], epoch) == 5


async def test_what_waits_when_the_stream_is_cut_is_sent_again_and_is_there_once(
    sessions: Serving,
) -> None:
    epoch = await lease(sessions)
    cut = Cut(await sessions.brain(), deaf=True)
    async with appending(cut) as appender, asyncio.TaskGroup() as group:
        appends = [group.create_task(appender.append("sesn_1", [HI], epoch)) for _ in range(3)]
        await cut.answered.wait()  # the server has them, and nobody heard it say so
        cut.cut.set()
    assert sorted(append.result() for append in appends) == [3, 4, 5]
    assert len(await kinds(sessions)) == 5


async def test_a_refusal_reaches_the_one_who_asked_and_no_other(sessions: Serving) -> None:
    epoch = await lease(sessions)
    async with appending(await sessions.brain()) as appender:
        answers = await asyncio.gather(
            appender.append("sesn_1", [HI], epoch),
            appender.append("sesn_2", [HI], 1),
            appender.append("sesn_1", [HI], epoch),
            appender.append("sesn_1", [HI], epoch + 1),
            return_exceptions=True,
        )
    good, missing, after, stale = answers
    assert (good, after) == (3, 4)
    assert isinstance(stale, CarpalError)
    assert isinstance(missing, CarpalError)
    assert (stale.reason, missing.reason) == (Reason.STALE_EPOCH, Reason.SESSION_NOT_FOUND)


async def test_a_waiter_that_was_cancelled_holds_up_nobody(sessions: Serving) -> None:
    epoch = await lease(sessions)
    appender = Appender(await sessions.brain())
    given_up = asyncio.create_task(appender.append("sesn_1", [HI], epoch))
    kept = asyncio.create_task(appender.append("sesn_1", [HI], epoch))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait({given_up})
    running = asyncio.create_task(appender.run())
    async with asyncio.timeout(WAIT):
        assert await kept == 3, "what nobody waits for is not sent on the next stream"
        assert await appender.append("sesn_1", [HI], epoch) == 4
    running.cancel()
    await asyncio.wait({running})


async def test_what_is_too_large_is_refused_before_it_ends_the_stream_of_all(
    sessions: Serving,
) -> None:
    epoch = await lease(sessions)
    large = New("agent.message", {"text": "x" * EVENT_BYTES})
    half = New("agent.message", {"text": "x" * (EVENT_BYTES // 2)})
    async with appending(await sessions.brain()) as appender:
        for events, reason in (
            ([large], Reason.EVENT_TOO_LARGE),
            ([half] * 9, Reason.GROUP_TOO_LARGE),
        ):
            with pytest.raises(CarpalError) as caught:
                await appender.append("sesn_1", events, epoch)
            assert caught.value.reason is reason
        assert await appender.append("sesn_1", [half] * 7, epoch) == 9


async def test_a_tail_gives_what_is_there_then_what_comes_and_goes_on_after_a_cut(
    sessions: Serving,
) -> None:
    epoch = await lease(sessions)
    cut = Cut(await sessions.brain())
    seen: list[int] = []
    grew = asyncio.Condition()

    async def follow() -> None:
        async for told, _ in tail(cut, "sesn_1"):  # type: ignore[arg-type]
            async with grew:
                seen.extend(each.entry.position for each in told)
                grew.notify_all()

    following = asyncio.create_task(follow())
    async with appending(await sessions.brain()) as appender:
        async with grew:
            await grew.wait_for(lambda: seen == [1, 2])
        cut.cut.set()
        await appender.append("sesn_1", [HI], epoch)
        async with grew:
            await grew.wait_for(lambda: seen == [1, 2, 3])
    following.cancel()
    await asyncio.wait({following})


async def test_a_tail_whose_certificate_ended_goes_on_with_the_next_one(sessions: Serving) -> None:
    """The stream lasted until the very end of it; by then the identity was renewed."""
    brain = await sessions.brain()
    await lease(sessions)
    over = refuse(Reason.CERTIFICATE_EXPIRED, "the client certificate expired during the stream")
    details = grpc.aio.Metadata(("grpc-status-details-bin", to_status(over).SerializeToString()))
    ended = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAUTHENTICATED, grpc.aio.Metadata(), details, over.message
    )

    class Ended:
        """A stub whose first stream ended so."""

        first = True

        def TailEvents(self, request: Any) -> Any:
            """See the session service."""
            if not self.first:
                return brain.TailEvents(request)
            self.first = False
            return self

        def __aiter__(self) -> AsyncIterator[Any]:
            return self

        async def __anext__(self) -> Any:
            raise ended

        def cancel(self) -> None:
            """Of what is over."""

    async with asyncio.timeout(WAIT):
        async for told, _live in tail(Ended(), "sesn_1"):  # type: ignore[arg-type]
            assert told
            break


async def test_a_tail_of_a_session_one_may_not_see_says_so(sessions: Serving) -> None:
    await create(sessions)
    stub = await sessions.operator("eve", "elsewhere")
    with pytest.raises(CarpalError) as caught:
        await anext(tail(stub, "sesn_1"))
    assert caught.value.reason is Reason.SESSION_NOT_FOUND


@pytest.mark.parametrize("data", [b"", b"not json", b"[1]", b'"x"', b"\xff"])
def test_data_that_is_no_object_reads_as_empty(data: bytes) -> None:
    entry = entry_of(types_pb2.Event(position=1, id="e", type="user.message", data=data))
    assert entry.data == {}


async def test_a_lease_given_up_ends_what_may_be_appended(sessions: Serving) -> None:
    await create(sessions)
    keeper = LeaseKeeper(await sessions.brain(), 10.0)
    held, _ = await keeper.acquire("session/sesn_1")
    await keeper.release(held)
    async with appending(await sessions.brain()) as appender:
        with pytest.raises(CarpalError) as caught:
            await appender.append("sesn_1", [HI], held.epoch)
    assert caught.value.reason is Reason.STALE_EPOCH


async def test_what_a_full_disk_refuses_is_sent_again_until_there_is_room(
    sessions: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await lease(sessions)
    store = sessions.parts.writer._store
    begin, tries = store.begin, 0

    def no_room(needs: Any = ()) -> Any:
        nonlocal tries
        tries += 1
        if tries <= 6:  # all that wait together, then each alone, and all of it again
            raise StoreFull("no room")
        return begin(needs)

    monkeypatch.setattr(store, "begin", no_room)
    async with appending(await sessions.brain()) as appender:
        appends = (
            appender.append("sesn_1", [HI], epoch),
            appender.append("sesn_1", [HI, HI], epoch),
        )
        first, second = await asyncio.gather(*appends)
        assert (first, second) == (3, 5)
    assert tries > 6
    assert len(await kinds(sessions)) == 5


def test_a_redacted_message_keeps_its_place_and_is_no_malformed_event() -> None:
    transcript = Transcript()
    kinds = ("session.updated", "user.message", "agent.tool_use", "user.message")
    for position, kind in enumerate(kinds, start=1):
        data = b'{"content": [{"type": "text", "text": "hi"}]}'
        event = types_pb2.Event(position=position, id=str(position), type=kind, data=data)
        if position in (2, 3):
            event.ClearField("data")
            event.redaction.by = "ada"
        transcript.apply(entry_of(event))
    texts = [entry.data["content"][0]["text"] for entry in transcript.inputs]
    assert texts == ["[redacted]", "hi"]
    assert transcript.malformed == []
