"""An answer that nobody reads has a bound, and what is left out of it is said."""

import pytest

from brain.daemons.answer_queue import WAITING_MAX
from brain.daemons.attach import Answer
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.stage import result

PIECE = 32 * 1024


def asked(arm: str) -> Answer:
    """The answer to a request."""
    request = pb.Request(request_id=1)
    getattr(request, arm).SetInParent()
    return Answer(request)


def output(number: int, size: int = PIECE) -> pb.Reply:
    """A piece of a call's output."""
    chunk = hand_pb2.OutputChunk(offset=number * size, data=bytes(size))
    return pb.Reply(request_id=1, execute=hand_pb2.ExecuteResponse(output=chunk))


def ended() -> pb.Reply:
    """A call's result."""
    return pb.Reply(request_id=1, last=True, execute=result("done"))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, PIECE])
async def test_output_that_nobody_reads_is_left_out_beyond_a_bound_and_counted(size: int) -> None:
    count = 20_000 if size == 1 else 2_000
    answer = asked("execute")
    for number in range(count):
        answer.put(output(number, size))
    answer.put(ended())
    assert answer._came._came.qsize() <= WAITING_MAX // max(size, 1024) + 2
    replies = [reply async for reply in answer.replies()]
    told = [reply.execute.output for reply in replies[:-1]]
    assert sum(len(chunk.data) for chunk in told) <= WAITING_MAX
    assert sum(len(chunk.data) + chunk.dropped_bytes for chunk in told) == count * size
    assert [chunk.dropped_bytes > 0 for chunk in told] == [False] * (len(told) - 1) + [True]
    assert replies[-1].execute.result.content == "done"


async def test_a_reader_that_goes_on_has_what_comes_then() -> None:
    answer = asked("execute")
    replies = answer.replies()
    for number in range(100):
        answer.put(output(number))
    read = 0
    for _ in range(31):
        read += len((await anext(replies)).execute.output.data)
    left_out = (await anext(replies)).execute.output
    assert (left_out.data, left_out.dropped_bytes) == (b"", 100 * PIECE - read)
    answer.put(output(100))
    assert (await anext(replies)).execute.output.offset == 100 * PIECE
    await replies.aclose()


async def test_what_may_not_be_left_out_ends_an_answer_that_nobody_reads() -> None:
    answer = asked("events")
    event = hand_pb2.EventsResponse(data=bytes(PIECE))
    for _ in range(1_000):
        answer.put(pb.Reply(request_id=1, events=event))
    replies = answer.replies()
    for _ in range(WAITING_MAX // (PIECE + 100)):
        await anext(replies)
    with pytest.raises(CarpalError) as caught:
        await anext(replies)
    assert caught.value.reason is Reason.DAEMON_NOT_LINKED
    assert not answer.complete, "the daemon is told that nobody reads on"
