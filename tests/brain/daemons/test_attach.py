"""Attach streams at a brain: whose they are, where they go on, and who has to wait for whom."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import pytest

from brain.daemons.attach import Answer, opening
from carpal.client import held, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2_grpc
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import Brain, Daemon, brain, linked
from tests.brain.stage import WAIT, result
from tests.sessiond.serving import Serving

LARGE = 192 * 1024


@pytest.fixture
async def one(sessions: Serving) -> AsyncIterator[Brain]:
    """A brain that serves."""
    async with brain(sessions) as serving:
        yield serving


def _output(offset: int, data: bytes, dropped: int = 0) -> hand_pb2.ExecuteResponse:
    chunk = hand_pb2.OutputChunk(offset=offset, data=data, dropped_bytes=dropped)
    return hand_pb2.ExecuteResponse(output=chunk)


async def _execute(at: Brain, call_id: str = "c") -> AsyncGenerator[Any, None]:
    connection = await at.fleet.connection("d1", "default")
    return connection.call("execute", hand_pb2.ExecuteRequest(call_id=call_id))


async def _next(responses: AsyncGenerator[Any, None]) -> hand_pb2.ExecuteResponse:
    async with asyncio.timeout(WAIT):
        response: hand_pb2.ExecuteResponse = await anext(responses)
        return response


def _open(daemon: Daemon, request: pb.Request, **other: Any) -> pb.AttachOpen:
    said = pb.AttachOpen(
        request_id=request.request_id,
        call_id=request.execute.call_id,
        epoch=daemon.welcome.epoch,
    )
    for name, value in other.items():
        setattr(said, name, value)
    return said


class Attached:
    """A daemon's end of one Attach stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, **message: Any) -> None:
        """One message; when the stream is refused meanwhile, reading says why."""
        async with asyncio.timeout(WAIT):
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._stream.write(pb.AttachRequest(**message))

    async def acknowledged(self) -> int | None:
        """The next offset that was read; None at the end."""
        async with asyncio.timeout(WAIT):
            said = await self._stream.read()
        return said.acknowledged_offset if isinstance(said, pb.AttachResponse) else None

    async def refused(self) -> Reason:
        """Why it is refused."""
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await self._to_its_end()
        return caught.value.reason

    async def _to_its_end(self) -> None:
        while await self.acknowledged() is not None:
            pass


@asynccontextmanager
async def _attached(
    stub: "orchestrator_pb2_grpc.OrchestratorAsyncStub", said: pb.AttachOpen | None = None
) -> AsyncIterator[Attached]:
    with held(stub.Attach()) as stream:
        attached = Attached(stream)
        if said is not None:
            await attached.send(open=said)
        yield attached


async def test_a_stream_goes_on_from_what_was_read_whichever_of_the_two_came_first(
    one: Brain,
) -> None:
    async with linked(one) as daemon:
        responses = await _execute(one)
        first = asyncio.ensure_future(anext(responses))
        request = await daemon.next()
        async with _attached(daemon.stub, _open(daemon, request)) as attached:
            await daemon.reply(request, last=False, execute=_output(0, b"inline "))
            assert (await first).output.data == b"inline "
            rest = asyncio.ensure_future(anext(responses))
            await daemon.reply(request, attached=True)
            assert await attached.acknowledged() == 7
            await attached.send(execute=_output(7, b"large"))
            assert (await rest).output.data == b"large"
            rest = asyncio.ensure_future(anext(responses))
            await attached.send(execute=result("done"))
            assert (await rest).result.content == "done"
            with pytest.raises(StopAsyncIteration):
                await _next(responses)
            assert await attached.acknowledged() is None, "it ends once the result is read"


async def test_what_was_read_before_is_cut_away_and_what_never_came_is_said(one: Brain) -> None:
    async with linked(one) as daemon:
        responses = await _execute(one)
        rest = asyncio.ensure_future(anext(responses))
        request = await daemon.next()
        await daemon.reply(request, attached=True)
        async with _attached(daemon.stub, _open(daemon, request)) as attached:
            assert await attached.acknowledged() == 0
            await attached.send(execute=_output(0, b"abcd"))
            assert (await rest).output.data == b"abcd"
            rest = asyncio.ensure_future(anext(responses))
            await attached.send(execute=_output(0, b"abc"))
            await attached.send(execute=_output(2, b"cdef"))
            said = (await rest).output
            assert (said.offset, said.data, said.dropped_bytes) == (4, b"ef", 0)
            rest = asyncio.ensure_future(anext(responses))
            await attached.send(execute=_output(10, b"x"))
            said = (await rest).output
            assert (said.offset, said.data, said.dropped_bytes) == (10, b"x", 4)
        await responses.aclose()


async def test_a_newer_stream_of_a_call_takes_the_place_of_one_that_does_not_know_it_broke(
    one: Brain,
) -> None:
    async with linked(one) as daemon:
        responses = await _execute(one)
        rest = asyncio.ensure_future(anext(responses))
        request = await daemon.next()
        await daemon.reply(request, attached=True)
        async with _attached(daemon.stub, _open(daemon, request)) as older:
            assert await older.acknowledged() == 0
            await older.send(execute=_output(0, b"abc"))
            assert (await rest).output.data == b"abc"
            rest = asyncio.ensure_future(anext(responses))
            async with _attached(daemon.stub, _open(daemon, request)) as newer:
                assert await newer.acknowledged() == 3
                assert await older.acknowledged() is None
                await newer.send(execute=result("done"))
                assert (await rest).result.content == "done"
        await responses.aclose()


async def test_streams_of_a_wrong_daemon_an_old_epoch_or_an_unknown_call_are_refused(
    one: Brain,
) -> None:
    async with linked(one) as daemon, linked(one, "d2") as other:
        responses = await _execute(one)
        asking = asyncio.ensure_future(anext(responses))
        request = await daemon.next()
        for who, said in (
            (other, _open(daemon, request)),
            (daemon, _open(daemon, request, epoch=daemon.welcome.epoch - 1)),
            (daemon, _open(daemon, request, epoch=daemon.welcome.epoch + 1)),
            (daemon, _open(daemon, request, request_id=request.request_id + 1)),
            (daemon, _open(daemon, request, call_id="other")),
        ):
            async with _attached(who.stub, said) as attached:
                assert await attached.refused() is Reason.CALL_NOT_FOUND
        for role in (Role.OPERATOR, Role.BRAIN):
            async with one.asked_by(role, "x") as channel:
                stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
                async with _attached(stub, _open(daemon, request)) as attached:
                    assert await attached.refused() is Reason.ROLE_NOT_ALLOWED
        async with one.asked_by(Role.DAEMON, "d3", "default") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            async with _attached(stub, _open(daemon, request)) as attached:
                assert await attached.refused() is Reason.CALL_NOT_FOUND
        await daemon.reply(request, execute=result("none of them did harm"))
        assert (await asking).result.content == "none of them did harm"
        async with _attached(daemon.stub, _open(daemon, request)) as attached:
            assert await attached.refused() is Reason.CALL_NOT_FOUND


async def test_a_stream_that_says_nothing_or_something_else_first_is_refused(one: Brain) -> None:
    async with linked(one) as daemon:
        async with _attached(daemon.stub) as attached:
            await attached.send(execute=_output(0, b"x"))
            assert await attached.refused() is Reason.LINK_VIOLATION
        responses = await _execute(one)
        rest = asyncio.ensure_future(anext(responses))
        request = await daemon.next()
        await daemon.reply(request, attached=True)
        async with _attached(daemon.stub, _open(daemon, request)) as attached:
            await attached.send(open=_open(daemon, request))
            assert await attached.refused() is Reason.LINK_VIOLATION
        async with _attached(daemon.stub, _open(daemon, request)) as attached:
            await attached.send(execute=result("done"))
            assert (await rest).result.content == "done"
        await responses.aclose()

    async def silent() -> AsyncIterator[pb.AttachRequest]:
        await asyncio.Event().wait()
        yield pb.AttachRequest()

    with pytest.raises(CarpalError) as caught:
        await opening(silent(), limit=0.01)
    assert caught.value.reason is Reason.LINK_SILENT


async def test_an_answer_that_moved_and_whose_stream_never_comes_is_asked_for_again() -> None:
    request = pb.Request(request_id=1, execute=hand_pb2.ExecuteRequest(call_id="c"))
    answer = Answer(request, stream_limit=0.01)
    answer.put(pb.Reply(request_id=1, attached=True, last=True))
    with pytest.raises(CarpalError) as caught:
        await anext(answer.replies())
    assert caught.value.reason is Reason.DAEMON_NOT_LINKED


async def test_a_reader_at_another_brain_that_stalls_delays_nothing_else_on_the_way_l23(
    one: Brain,
) -> None:
    pieces = 200  # beyond what all windows on the way hold
    async with brain(one.sessions, "brain-2") as two, linked(one) as daemon:
        await two.sees(lambda fleet: "d1" in fleet.directory.daemons)
        responses = await _execute(two)
        rest = asyncio.ensure_future(anext(responses))
        request = await daemon.next()
        await daemon.reply(request, attached=True)
        async with _attached(daemon.stub, _open(daemon, request)) as attached:
            sent = 0

            async def send() -> None:
                nonlocal sent
                for number in range(pieces):
                    data = number.to_bytes(1, "big") * LARGE
                    await attached._stream.write(
                        pb.AttachRequest(execute=_output(number * LARGE, data))
                    )
                    sent += 1
                await attached.send(execute=result("done"))

            sending = asyncio.create_task(send())
            assert (await rest).output.data == bytes(LARGE)
            for _ in range(20):  # while nobody reads
                described = (await two.fleet.connection("d1", "default")).call(
                    "describe", hand_pb2.DescribeRequest()
                )
                asking = asyncio.ensure_future(anext(described))
                await daemon.reply(await daemon.next(), describe=hand_pb2.DescribeResponse())
                async with asyncio.timeout(WAIT):
                    await asking
                await described.aclose()
            assert sent < pieces
            read = 1
            async with asyncio.timeout(3 * WAIT), aclosing(responses):
                async for response in responses:
                    if response.HasField("result"):
                        break
                    assert response.output.data == read.to_bytes(1, "big") * LARGE
                    read += 1
            assert read == pieces
            await sending


async def test_twenty_calls_dropped_without_a_word_are_all_cancelled_l33(one: Brain) -> None:
    async with brain(one.sessions, "brain-2") as two, linked(one) as daemon:
        await two.sees(lambda fleet: "d1" in fleet.directory.daemons)
        for number in range(20):
            responses = await _execute(two, f"c{number}")
            first = asyncio.ensure_future(anext(responses))
            await daemon.reply(await daemon.next(), last=False, execute=_output(0, b"up"))
            async with asyncio.timeout(WAIT):
                await first
        del responses, first
        gc.collect()
        async with asyncio.timeout(WAIT):
            left = {await daemon.abandoned.get() for _ in range(20)}
        assert len(left) == 20, "and the daemon knows that nobody reads them"
