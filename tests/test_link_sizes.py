"""What is too large for the control stream is refused or replaced, and never asked for ever."""

import pytest

from carpal.client import MESSAGE_BYTES
from carpal.errors import CarpalError, from_status
from carpal.link import Replied, State
from carpal.link_ids import AHEAD_MAX, Arrivals
from carpal.link_sizes import MESSAGE_MAX, fitting
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_ends import deliver, linked


def test_the_limit_leaves_room_below_what_a_stream_can_carry() -> None:
    assert MESSAGE_MAX + 64 * 1024 < MESSAGE_BYTES


def test_a_request_that_no_link_can_carry_is_refused_and_the_link_goes_on_l21() -> None:
    brain, daemon = linked()
    huge = pb.Request(execute=hand_pb2.ExecuteRequest(input=b" " * MESSAGE_MAX))
    with pytest.raises(CarpalError) as caught:
        brain.request(huge)
    assert caught.value.reason is Reason.MESSAGE_TOO_LARGE
    assert brain.outgoing() == []
    assert not brain.unfinished
    assert brain.request(pb.Request(describe=hand_pb2.DescribeRequest())) == 1, "no id is left out"
    assert len(deliver(brain, daemon, 1.0)) == 1


def test_a_result_that_no_link_can_carry_keeps_its_outcome_and_says_what_is_left_out_l21() -> None:
    brain, daemon = linked()
    request_id = brain.request(pb.Request(execute=hand_pb2.ExecuteRequest(call_id="c")))
    deliver(brain, daemon, 1.0)
    content = "a" + "\u270b" * MESSAGE_MAX + "z"
    result = hand_pb2.Result(
        outcome=hand_pb2.OUTCOME_ERROR,
        content=content,
        exit_code=3,
        omitted_bytes=1,
        attachments=[hand_pb2.Attachment(name="big")],
    )
    daemon.reply(
        pb.Reply(request_id=request_id, last=True, execute=hand_pb2.ExecuteResponse(result=result))
    )
    (event,) = deliver(daemon, brain, 1.0)
    assert isinstance(event, Replied)
    came = event.reply.execute.result
    assert (came.outcome, came.exit_code) == (hand_pb2.OUTCOME_ERROR, 3)
    assert came.content[0] + came.content[-1] == "a]"
    omitted = len(content.encode()) - 128 * 1024
    assert came.omitted_bytes == omitted + 1
    assert f"{omitted} bytes left out" in came.content
    assert "1 attachments left out" in came.content
    assert brain.state is State.OPEN
    assert not brain.unfinished


def test_attachments_that_no_link_can_carry_are_left_out_and_the_text_stays() -> None:
    attachment = hand_pb2.Attachment(data=b"x" * MESSAGE_MAX)
    result = hand_pb2.Result(content="text", attachments=[attachment])
    came = fitting(
        pb.Reply(last=True, execute=hand_pb2.ExecuteResponse(result=result))
    ).execute.result
    assert came.content == "text\n[1 attachments left out: too large for the link]"


def test_output_that_no_link_can_carry_counts_as_dropped() -> None:
    chunk = hand_pb2.OutputChunk(offset=5, data=b"x" * MESSAGE_MAX, dropped_bytes=2)
    came = fitting(pb.Reply(execute=hand_pb2.ExecuteResponse(output=chunk))).execute.output
    assert (came.offset, came.data, came.dropped_bytes) == (5 + MESSAGE_MAX, b"", 2 + MESSAGE_MAX)


def test_any_other_answer_that_no_link_can_carry_is_a_refusal() -> None:
    listed = hand_pb2.ListHandsResponse(hands=[hand_pb2.HandInfo(reason="x" * MESSAGE_MAX)])
    came = fitting(pb.Reply(request_id=4, list_hands=listed))
    assert (came.request_id, came.last) == (4, True)
    assert from_status(came.status).reason is Reason.MESSAGE_TOO_LARGE


def test_what_fits_is_sent_as_it_is() -> None:
    reply = pb.Reply(request_id=1, last=True, describe=hand_pb2.DescribeResponse(version="1"))
    assert fitting(reply) is reply


def test_ids_come_once_in_any_order_and_gaps_are_not_kept_for_ever() -> None:
    arrivals = Arrivals()
    assert [arrivals.take(number) for number in (2, 1, 4)] == ["", "", ""]
    assert [number in arrivals for number in (1, 2, 3, 4, 5)] == [True, True, False, True, False]
    assert arrivals.take(2) == "request 2 came twice"
    assert arrivals.take(4) == "request 4 came twice"
    for number in range(5, 4 + AHEAD_MAX):
        assert arrivals.take(number) == ""
    assert arrivals.take(4 + AHEAD_MAX) == "request 3 never came"
