"""The link: both ends of the state machine, rule by rule."""

from hypothesis import given
from hypothesis import strategies as st

from carpal.link import (
    GREETING_LIMIT,
    WELCOME_LIMIT,
    Abandoned,
    BrainsChanged,
    CapacityChanged,
    Closed,
    Contact,
    Greeted,
    Link,
    PeerDraining,
    Replied,
    Requested,
    Side,
    State,
    Welcomed,
)
from carpal.status import Code, Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_ends import closed, deliver, fault, hello, linked, sent, welcome


def test_hello_then_welcome_opens_both_ends() -> None:
    brain, daemon = Link(Side.BRAIN, 0.0), Link(Side.DAEMON, 0.0, hello())
    assert deliver(daemon, brain, 0.1) == [Greeted(hello(), 1)]
    brain.welcome(welcome(), 0.2)
    assert deliver(brain, daemon, 0.3) == [Welcomed(welcome())]
    assert brain.state is daemon.state is State.OPEN


def test_a_daemon_that_speaks_no_common_version_is_told_both_ranges() -> None:
    brain = Link(Side.BRAIN, 0.0)
    newer = pb.Hello(daemon_id="d", protocol_min=7, protocol_max=9)
    brain.receive([pb.DaemonMessage(hello=newer)], 0.0)
    (closed,) = brain.events()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.reason is Reason.VERSION_UNSUPPORTED
    assert "7 to 9" in closed.reason
    assert "1 to 1" in closed.reason


def test_a_daemon_obeys_no_brain_whose_epoch_is_not_above_the_last() -> None:
    daemon = Link(Side.DAEMON, 0.0, hello(last_epoch=5))
    daemon.receive([pb.BrainMessage(welcome=welcome(epoch=5))], 0.0)
    (closed,) = daemon.events()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.reason is Reason.LINK_SUPERSEDED


def test_a_hello_that_does_not_come_in_time_ends_the_link() -> None:
    brain = Link(Side.BRAIN, 100.0)
    brain.tick(100.0 + GREETING_LIMIT - 0.01)
    assert not brain.events()
    brain.tick(100.0 + GREETING_LIMIT)
    assert isinstance(brain.events()[0], Closed)


def test_what_is_no_greeting_keeps_no_greeting_waiting() -> None:
    """A daemon that says nothing, often, is as silent; and so is a brain that does not welcome."""
    brain, daemon = Link(Side.BRAIN, 0.0), Link(Side.DAEMON, 0.0, hello())
    for now in range(1, 5):
        brain.receive([pb.DaemonMessage()], float(now))
        daemon.receive([pb.BrainMessage()], 4.0 * now)
    brain.tick(GREETING_LIMIT)
    assert fault(brain).reason is Reason.LINK_SILENT
    daemon.tick(WELCOME_LIMIT)
    assert fault(daemon).reason is Reason.LINK_SILENT


def test_heartbeats_go_first_and_carry_what_is_left_of_the_brains_lease() -> None:
    brain, daemon = linked()
    brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    brain.tick(5.0, lease_left=7.5)
    outgoing = brain.outgoing()
    assert [urgent for m, urgent in outgoing if m.WhichOneof("kind") == "heartbeat"] == [True]
    daemon.receive([m for m, _ in outgoing], 5.0)
    assert Contact(7.5) in daemon.events()


def test_a_brain_that_takes_its_time_to_answer_a_hello_does_not_take_that_for_silence() -> None:
    brain, daemon = Link(Side.BRAIN, 0.0), Link(Side.DAEMON, 0.0, hello())
    deliver(daemon, brain, 1.0)
    for end in (brain, daemon):
        end.tick(GREETING_LIMIT + 1.0)
        assert not closed(end)
        end.tick(WELCOME_LIMIT + 1.0)
        assert closed(end)


def test_an_end_that_stood_still_reads_first_before_it_calls_the_other_silent() -> None:
    _, daemon = linked()
    daemon.tick(100.0, late=95.0)
    daemon.tick(104.9)
    assert not closed(daemon)
    daemon.tick(105.0)
    assert closed(daemon)


def test_silence_ends_the_link_at_the_limit_and_not_before() -> None:
    _, daemon = linked()
    daemon.tick(14.9)
    assert daemon.state is State.OPEN
    daemon.tick(15.0)
    (closed,) = daemon.events()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.reason is Reason.LINK_SILENT


def test_next_tick_never_sleeps_past_what_is_due() -> None:
    brain, _ = linked()
    assert brain.next_tick() == 5.0
    brain.tick(5.0)
    assert brain.next_tick() == 10.0
    brain.tick(10.0)
    assert brain.next_tick() == 15.0  # silence, three intervals after the last word


def test_a_request_and_its_replies_meet_by_id() -> None:
    brain, daemon = linked()
    first = brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    second = brain.request(pb.Request(describe=hand_pb2.DescribeRequest()))
    asked = [e.request.request_id for e in deliver(brain, daemon, 1.0) if isinstance(e, Requested)]
    assert asked == [first, second]
    daemon.reply(pb.Reply(request_id=second, last=True, describe=hand_pb2.DescribeResponse()))
    (event,) = deliver(daemon, brain, 1.0)
    assert isinstance(event, Replied)
    assert event.reply.request_id == second
    assert brain.unfinished == {first}


def test_a_request_arm_nobody_knows_is_answered_unimplemented_not_silence() -> None:
    brain, daemon = linked()
    request_id = brain.request(pb.Request())  # an arm of a newer brain reads as unset
    assert deliver(brain, daemon, 1.0) == []
    (event,) = deliver(daemon, brain, 1.0)
    assert isinstance(event, Replied)
    assert event.reply.request_id == request_id
    assert event.reply.last
    assert event.reply.status.code == Code.UNIMPLEMENTED


def test_a_message_kind_nobody_knows_is_skipped() -> None:
    brain, _ = linked()
    brain.receive([pb.DaemonMessage()], 1.0)
    assert brain.state is State.OPEN


def test_an_abandoned_answer_still_ends_and_is_not_a_violation() -> None:
    brain, daemon = linked()
    request_id = brain.request(pb.Request(execute=hand_pb2.ExecuteRequest()))
    deliver(brain, daemon, 1.0)
    brain.abandon(request_id)
    assert deliver(brain, daemon, 1.0) == [Abandoned(request_id)]
    daemon.reply(pb.Reply(request_id=request_id, last=True, execute=hand_pb2.ExecuteResponse()))
    deliver(daemon, brain, 1.0)
    assert brain.state is State.OPEN
    assert not brain.unfinished


def test_a_reply_to_nothing_closes_the_link() -> None:
    brain, _ = linked()
    brain.receive([pb.DaemonMessage(reply=pb.Reply(request_id=9, last=True))], 1.0)
    assert brain.state is State.CLOSED


def test_an_answer_to_another_kind_of_request_closes_the_link() -> None:
    brain, daemon = linked()
    request_id = brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    deliver(brain, daemon, 1.0)
    daemon.reply(pb.Reply(request_id=request_id, last=True, describe=hand_pb2.DescribeResponse()))
    deliver(daemon, brain, 1.0)
    assert brain.state is State.CLOSED


def test_a_request_id_that_comes_again_closes_the_link() -> None:
    brain, daemon = linked()
    brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    messages = sent(brain)
    daemon.receive(messages, 1.0)
    daemon.receive(messages, 1.0)
    assert daemon.state is State.CLOSED


def test_a_cancel_overtakes_what_waits_and_the_daemon_takes_both() -> None:
    brain, daemon = linked()
    execute = brain.request(pb.Request(execute=hand_pb2.ExecuteRequest()))
    cancel = brain.request(pb.Request(cancel=hand_pb2.CancelRequest()))
    outgoing = brain.outgoing()
    assert [urgent for _, urgent in outgoing] == [False, True]
    urgent_first = sorted(outgoing, key=lambda message: not message[1])
    daemon.receive([message for message, _ in urgent_first], 1.0)
    asked = [e.request.request_id for e in daemon.events() if isinstance(e, Requested)]
    assert asked == [cancel, execute]


def test_a_daemon_learns_of_brains_that_come_and_go_while_it_is_linked() -> None:
    brain, daemon = linked()
    brain.brains(["10.0.0.1:7441", "10.0.0.2:7441"])
    assert deliver(brain, daemon, 1.0) == [BrainsChanged(("10.0.0.1:7441", "10.0.0.2:7441"))]


def test_draining_goes_on_answering_and_says_so() -> None:
    brain, daemon = linked()
    daemon.drain(pb.Drain(reason="deploy"))
    assert [type(e) for e in deliver(daemon, brain, 1.0)] == [PeerDraining]
    request_id = brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest()))
    deliver(brain, daemon, 1.0)
    listed = hand_pb2.ListHandsResponse()
    daemon.reply(pb.Reply(request_id=request_id, last=True, list_hands=listed))
    daemon.capacity(pb.Capacity(hands=1))
    assert [type(e) for e in deliver(daemon, brain, 1.0)] == [Replied, CapacityChanged]


def test_goodbye_closes_both_ends_without_an_error() -> None:
    brain, daemon = linked()
    brain.goodbye("the brain stops")
    assert brain.events() == [Closed(None, "the brain stops")]
    assert deliver(brain, daemon, 1.0) == [Closed(None, "the brain stops")]


def test_a_closed_link_says_so_once_and_sends_nothing_more() -> None:
    _, daemon = linked()
    daemon.eof("gone")
    daemon.eof("gone again")
    daemon.reply(pb.Reply(request_id=1, last=True))
    daemon.capacity(pb.Capacity())
    daemon.tick(1000.0)
    assert daemon.events() == [Closed(None, "gone")]
    assert daemon.outgoing() == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), st.integers(0, 4)),
        st.tuples(st.just("answer"), st.integers(0, 20)),
        st.tuples(st.just("partial"), st.integers(0, 20)),
        st.tuples(st.just("abandon"), st.integers(0, 20)),
        st.tuples(st.just("deliver"), st.integers(0, 1)),
        st.tuples(st.just("tick"), st.integers(0, 4)),
    ),
    max_size=60,
)


@given(STEPS)
def test_any_walk_of_two_honest_ends_loses_and_doubles_no_answer(
    steps: list[tuple[str, int]],
) -> None:
    brain, daemon = linked()
    now = 0.0
    asked: list[int] = []
    open_at_daemon: list[int] = []
    answered: dict[int, int] = {}
    got: dict[int, int] = {}

    def run(target: str) -> None:
        if target == "daemon":
            events = deliver(brain, daemon, now)
            open_at_daemon.extend(e.request.request_id for e in events if isinstance(e, Requested))
        else:
            for event in deliver(daemon, brain, now):
                if isinstance(event, Replied) and event.reply.last:
                    got[event.reply.request_id] = got.get(event.reply.request_id, 0) + 1

    for action, value in steps:
        if action == "request":
            asked.append(brain.request(pb.Request(list_hands=hand_pb2.ListHandsRequest())))
        elif action in ("answer", "partial") and open_at_daemon:
            request_id = open_at_daemon[value % len(open_at_daemon)]
            part = hand_pb2.ListHandsResponse()
            last = action == "answer"
            daemon.reply(pb.Reply(request_id=request_id, last=last, list_hands=part))
            if action == "answer":
                open_at_daemon.remove(request_id)
                answered[request_id] = 1
        elif action == "abandon" and asked:
            brain.abandon(asked[value % len(asked)])
        elif action == "deliver":
            run(("brain", "daemon")[value])
        elif action == "tick":
            now += value
            brain.tick(now, 1.0)
            daemon.tick(now)
            run("daemon")
            run("brain")
    run("daemon")
    run("brain")
    assert brain.state is daemon.state is State.OPEN
    assert got == answered
    assert brain.unfinished == set(asked) - set(answered)
