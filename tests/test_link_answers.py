"""Answers that move to an Attach stream: which they are, how far they were read, and their end."""

import pytest

from carpal.errors import CarpalError
from carpal.link import Abandoned, Closed, Link, Replied, Requested, State
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_ends import closed, deliver, fault, linked


def execute(call_id: str = "c", offset: int = 0) -> pb.Request:
    return pb.Request(execute=hand_pb2.ExecuteRequest(call_id=call_id, output_offset=offset))


def opening(request_id: int, call_id: str = "c", epoch: int = 1) -> pb.AttachOpen:
    return pb.AttachOpen(request_id=request_id, call_id=call_id, epoch=epoch)


def moved(request_id: int) -> pb.Reply:
    return pb.Reply(request_id=request_id, attached=True, last=True)


def output(request_id: int, offset: int, data: bytes) -> pb.Reply:
    chunk = hand_pb2.OutputChunk(offset=offset, data=data)
    return pb.Reply(request_id=request_id, execute=hand_pb2.ExecuteResponse(output=chunk))


def attached(offset: int = 0) -> tuple[Link, Link, int]:
    """Both ends, and a request whose answer moved."""
    brain, daemon = linked()
    request_id = brain.request(execute(offset=offset))
    deliver(brain, daemon, 1.0)
    daemon.reply(moved(request_id))
    assert deliver(daemon, brain, 1.0) == [Replied(moved(request_id))]
    return brain, daemon, request_id


def refusal(brain: Link, open_: pb.AttachOpen) -> Reason:
    with pytest.raises(CarpalError) as caught:
        brain.attach(open_)
    return caught.value.reason


def test_an_answer_that_moves_is_attached_at_both_ends_until_it_ends_there() -> None:
    brain, daemon, request_id = attached()
    for end in (brain, daemon):
        assert end.attached == {request_id: 0}
        assert end.unfinished == {request_id}
        end.finish(request_id)
        assert end.attached == {}
        assert not end.unfinished


def test_an_attach_goes_on_from_what_was_acknowledged_and_never_from_less() -> None:
    brain, daemon, request_id = attached(offset=7)
    assert brain.attach(opening(request_id)) == 7
    for offset in (100, 40):
        brain.acknowledge(request_id, offset)
        daemon.acknowledge(request_id, offset)
    assert brain.attach(opening(request_id)) == 100
    assert daemon.attached == {request_id: 100}


def test_an_attach_goes_on_where_the_output_on_the_control_stream_ended() -> None:
    brain, daemon = linked()
    request_id = brain.request(execute(offset=2))
    deliver(brain, daemon, 1.0)
    daemon.reply(output(request_id, 2, b"cdef"))
    daemon.reply(moved(request_id))
    deliver(daemon, brain, 1.0)
    assert brain.attach(opening(request_id)) == 6
    assert daemon.attached == {request_id: 6}


def test_an_attach_that_comes_before_the_reply_that_says_so_waits_for_it() -> None:
    brain, daemon = linked()
    request_id = brain.request(execute())
    deliver(brain, daemon, 1.0)
    daemon.reply(moved(request_id))
    assert brain.attach(opening(request_id)) is None
    deliver(daemon, brain, 1.0)
    assert brain.attach(opening(request_id)) == 0


def test_an_attach_of_another_call_another_link_or_no_answer_is_refused() -> None:
    brain, _, request_id = attached()
    wrong = [opening(request_id, call_id="other"), opening(request_id, epoch=2), opening(9)]
    listed = brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    for each in (*wrong, opening(listed, call_id="")):
        assert refusal(brain, each) is Reason.CALL_NOT_FOUND
    brain.eof("cut")
    assert refusal(brain, opening(request_id)) is Reason.CALL_NOT_FOUND


def test_a_reply_after_the_answer_moved_closes_the_link() -> None:
    brain, _, request_id = attached()
    late = pb.Reply(request_id=request_id, last=True, execute=hand_pb2.ExecuteResponse())
    brain.receive([pb.DaemonMessage(reply=late)], 2.0)
    assert fault(brain).reason is Reason.LINK_VIOLATION


def test_a_daemon_says_nothing_on_the_control_stream_of_an_answer_that_moved() -> None:
    _, daemon, request_id = attached()
    daemon.reply(pb.Reply(request_id=request_id, last=True))
    assert daemon.outgoing() == []


def test_an_answer_that_cannot_move_and_does_closes_the_link() -> None:
    brain, daemon = linked()
    request_id = brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    deliver(brain, daemon, 1.0)
    brain.receive([pb.DaemonMessage(reply=moved(request_id))], 1.0)
    assert fault(brain).reason is Reason.LINK_VIOLATION


def test_abandoning_a_moved_answer_ends_it_at_both_ends() -> None:
    brain, daemon, request_id = attached()
    brain.abandon(request_id)
    assert not brain.unfinished
    assert refusal(brain, opening(request_id)) is Reason.CALL_NOT_FOUND
    assert deliver(brain, daemon, 2.0) == [Abandoned(request_id)]
    assert not daemon.unfinished
    brain.abandon(request_id)
    assert brain.outgoing() == [], "it is said once"


def test_abandoning_an_answer_that_moves_meanwhile_ends_it_at_both_ends() -> None:
    brain, daemon = linked()
    request_id = brain.request(execute())
    deliver(brain, daemon, 1.0)
    brain.abandon(request_id)
    daemon.reply(moved(request_id))
    deliver(daemon, brain, 1.0)
    assert refusal(brain, opening(request_id)) is Reason.CALL_NOT_FOUND
    assert deliver(brain, daemon, 1.0) == [Abandoned(request_id)]
    assert not brain.unfinished
    assert not daemon.unfinished


def test_abandoning_what_was_never_asked_closes_the_link() -> None:
    _, daemon = linked()
    daemon.receive([pb.BrainMessage(abandon=pb.Abandon(request_id=1))], 1.0)
    assert fault(daemon).reason is Reason.LINK_VIOLATION


def test_output_that_comes_again_is_given_once_and_output_that_did_not_come_is_counted() -> None:
    brain, daemon = linked()
    request_id = brain.request(execute(offset=2))
    deliver(brain, daemon, 1.0)
    given = b""
    for offset, data in ((0, b"abcd"), (2, b"cd"), (3, b"def"), (9, b"j")):
        brain.receive([pb.DaemonMessage(reply=output(request_id, offset, data))], 1.0)
        for event in brain.events():
            assert isinstance(event, Replied)
            chunk = event.reply.execute.output
            given += b"?" * chunk.dropped_bytes + chunk.data
    assert given == b"cdef???j"


def test_a_daemon_does_not_send_output_twice() -> None:
    brain, daemon = linked()
    request_id = brain.request(execute())
    deliver(brain, daemon, 1.0)
    daemon.reply(output(request_id, 0, b"ab"))
    daemon.reply(output(request_id, 0, b"ab"))
    assert len(daemon.outgoing()) == 1


def test_a_daemon_that_ends_a_link_for_a_fault_says_why() -> None:
    brain, daemon = linked()
    brain.request(execute())
    messages = [message for message, _ in brain.outgoing()]
    daemon.receive(messages + messages, 1.0)
    assert closed(daemon)
    assert deliver(daemon, brain, 1.0) == [Closed(None, "request 1 came twice")]


def test_a_new_hand_is_not_asked_for_by_a_brain_that_drains_and_calls_go_on() -> None:
    brain, daemon = linked()
    brain.drain(pb.Drain())
    with pytest.raises(CarpalError) as caught:
        brain.request(pb.Request(provision=hand_pb2.ProvisionRequest()))
    assert caught.value.reason is Reason.DAEMON_NOT_LINKED
    call = brain.request(execute())
    asked = [e for e in deliver(brain, daemon, 1.0) if isinstance(e, Requested)]
    assert [event.request.request_id for event in asked] == [call]


def test_a_brain_that_drains_and_asks_for_a_new_hand_is_refused_and_the_daemon_not_told() -> None:
    brain, daemon = linked()
    request_id = brain.request(pb.Request(provision=hand_pb2.ProvisionRequest()))
    drain, provision = pb.BrainMessage(drain=pb.Drain()), brain.outgoing()[0][0]
    daemon.receive([drain, provision], 1.0)
    assert not any(isinstance(event, Requested) for event in daemon.events())
    (refused,) = deliver(daemon, brain, 1.0)
    assert isinstance(refused, Replied)
    assert refused.reply.request_id == request_id
    assert refused.reply.status.message == "the daemon's link drains and takes no new hands"


def test_a_daemon_that_drains_is_still_asked_for_hands_since_it_may_have_made_them() -> None:
    brain, daemon = linked()
    daemon.drain(pb.Drain())
    deliver(daemon, brain, 1.0)
    brain.request(pb.Request(provision=hand_pb2.ProvisionRequest()))
    assert any(isinstance(event, Requested) for event in deliver(brain, daemon, 1.0))


def test_both_ends_may_drain_and_each_says_so_once() -> None:
    brain, daemon = linked()
    for one, other in ((daemon, brain), (brain, daemon)):
        one.drain(pb.Drain())
        one.drain(pb.Drain())
        assert len(deliver(one, other, 1.0)) == 1
    assert brain.state is daemon.state is State.DRAINING


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (execute(), pb.Reply()),
        (execute(), output(0, 0, b"up")),
        (execute(), pb.Reply(claim=hand_pb2.ClaimResponse())),
        (pb.Request(provision=hand_pb2.ProvisionRequest()), pb.Reply()),
        (
            pb.Request(provision=hand_pb2.ProvisionRequest()),
            pb.Reply(provision=hand_pb2.ProvisionResponse(progress=hand_pb2.ProvisionProgress())),
        ),
        (pb.Request(claim=hand_pb2.ClaimRequest()), pb.Reply()),
    ],
)
def test_an_answer_that_ends_without_what_was_asked_for_closes_the_link_and_says_which(
    request_: pb.Request, reply: pb.Reply
) -> None:
    brain, _ = linked()
    brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    reply.request_id, reply.last = brain.request(request_), True
    brain.receive([pb.DaemonMessage(reply=reply)], 2.0)
    (end,) = brain.events()
    assert isinstance(end, Closed)
    assert end.error is not None
    assert end.error.reason is Reason.LINK_VIOLATION
    assert end.request_id == reply.request_id


def test_a_result_may_come_before_the_reply_that_says_last() -> None:
    brain, _ = linked()
    request_id = brain.request(execute())
    result = hand_pb2.ExecuteResponse(result=hand_pb2.Result(content="done"))
    brain.receive(
        [
            pb.DaemonMessage(reply=pb.Reply(request_id=request_id, execute=result)),
            pb.DaemonMessage(reply=pb.Reply(request_id=request_id, last=True)),
        ],
        2.0,
    )
    assert [type(event) for event in brain.events()] == [Replied, Replied]


def test_an_answer_that_nobody_reads_may_end_as_it_likes() -> None:
    brain, _ = linked()
    request_id = brain.request(execute())
    brain.abandon(request_id)
    brain.receive([pb.DaemonMessage(reply=pb.Reply(request_id=request_id, last=True))], 2.0)
    assert not closed(brain)
