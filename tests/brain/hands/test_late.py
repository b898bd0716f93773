"""What a hand tells of a call the log gave up: cancelled there first, added, told to the model."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.protobuf.message import Message

from brain.daemons.fleet import ORPHAN_MARGIN
from brain.daemons.returned import waits
from brain.hands.calls import Calls
from brain.hands.hand_line import HandLine
from brain.hands.late import HEARD_AT_ONCE, hear_late
from brain.session.entries import New
from brain.session.results import settled
from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2, types_pb2
from tests.brain.context.chats import messages
from tests.brain.hands.test_call_on_hand import info
from tests.brain.logs import Log
from tests.brain.stage import UNLINKED, WAIT, Stage, result


async def given_up(driven: Stage) -> str:
    """A call that was sent, and given up; its hand is linked again by now."""
    await driven.hand(deadline=0.1 - ORPHAN_MARGIN)
    call_id = await driven.call(earlier=True)
    driven.hands.linked = False
    await driven.settle(call_id)
    driven.hands.linked = True
    return call_id


def late(driven: Stage, call_id: str) -> dict[str, Any] | None:
    """What the log has of it now."""
    return driven.driver.transcript.calls[call_id].late


async def test_a_truth_that_arrives_later_is_added_told_to_the_model_and_freed_at_the_hand(
    driven: Stage,
) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    await driven.calls.hear_all()
    assert driven.hands.arms() == ["claim", "cancel", "execute", "acknowledge"]
    told = late(driven, call_id)
    assert told is not None
    assert (told["outcome"], told["hand_id"], told["sequence"]) == ("ok", "hand_1", 2)
    transcript = driven.driver.transcript
    assert (await driven.kinds())[-1] == "hand.late_result"
    assert transcript.wants_model()
    said = messages(transcript)[-1]["content"]
    assert [block["type"] for block in said] == ["tool_result", "text"]
    assert call_id in said[1]["text"]
    assert said[1]["text"].endswith("it ended as ok]\ndone")


async def test_a_call_given_up_is_cancelled_at_its_hand_ahead_of_all_else(driven: Stage) -> None:
    """Also while it runs: what it gave until then is its truth."""
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_RUNNING)
    stopped = result("up\n[cancelled]", hand_pb2.OUTCOME_CANCELLED)
    driven.hands.script["execute"] = [[stopped]]
    await driven.calls.hear_all()
    assert driven.hands.arms() == ["claim", "cancel", "execute", "acknowledge"]
    told = late(driven, call_id)
    assert told is not None
    assert told["outcome"] == "cancelled"


async def test_on_a_hand_that_lives_on_a_call_given_up_is_cancelled_before_the_next_runs(
    driven: Stage,
) -> None:
    await driven.hand()
    first = await driven.call()
    driven.hands.script["execute"] = [refuse(Reason.INTERNAL, "the daemon broke")]
    (told,) = await driven.settle(first)
    assert told["given_up"]
    driven.hands.asked.clear()
    await driven.settle(await driven.call())
    assert driven.hands.arms() == ["claim", "cancel", "execute", "acknowledge"]
    assert driven.hands.asked_for("cancel")[0].call_id == first


async def test_a_call_that_never_reached_its_hand_is_told_as_cancelled_if_that_is_believed(
    driven: Stage,
) -> None:
    call_id = await given_up(driven)
    await driven.calls.hear_all()
    assert "execute" not in driven.hands.arms()
    told = late(driven, call_id)
    assert told is not None
    assert told["outcome"] == "cancelled"
    assert "never reached its hand" in told["content"][0]["text"]


async def test_a_hand_that_cannot_say_adds_nothing_and_is_asked_once(driven: Stage) -> None:
    call_id = await given_up(driven)
    driven.hands.journal_id = "other"
    await driven.calls.hear_all()
    await driven.calls.hear_all()
    assert late(driven, call_id) is None
    assert driven.hands.arms().count("claim") == 1


@pytest.mark.parametrize("outcome", [hand_pb2.OUTCOME_LOST, hand_pb2.OUTCOME_INTERRUPTED])
async def test_what_says_no_more_than_the_log_does_is_no_late_result(
    driven: Stage, outcome: hand_pb2.Outcome.ValueType
) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    driven.hands.script["execute"] = [[result("[lost]", outcome)]]
    await driven.calls.hear_all()
    assert late(driven, call_id) is None
    assert driven.hands.arms()[-1] == "acknowledge"


async def test_a_cut_while_a_hand_is_heard_loses_nothing(driven: Stage) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    driven.hands.script["execute"] = [UNLINKED]
    await driven.calls.hear_all()
    assert late(driven, call_id) is None
    assert "acknowledge" not in driven.hands.arms()
    await driven.calls.hear_all()
    assert late(driven, call_id) is not None


async def test_a_driver_hears_a_hand_that_comes_back_while_it_drives(driven: Stage) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    driven.hands.linked = False
    looking = asyncio.create_task(Calls(driven.driver, driven.fleet, driven.hub).look_after())
    try:
        await asyncio.sleep(0)
        driven.hands.linked = True
        async with asyncio.timeout(WAIT):
            while late(driven, call_id) is None:
                await driven.fleet.directory.notify()
                await asyncio.sleep(0.01)
    finally:
        looking.cancel()
        await asyncio.wait({looking})


async def test_a_hand_given_up_for_good_is_ended_when_it_comes_back_after_all(
    driven: Stage,
) -> None:
    call_id = await given_up(driven)
    lost = {"hand_id": "hand_1", "name": "shell", "reason": "gone", "given_up": True}
    await driven.driver.append(New("hand.lost", lost))
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    await driven.calls.hear_all()
    assert driven.hands.arms()[-1] == "release"
    assert (await driven.kinds())[-2:] == ["hand.late_result", "hand.released"]
    assert not driven.driver.transcript.may_return()


async def test_a_call_that_is_given_up_is_not_acknowledged_before_it_is_heard(
    driven: Stage,
) -> None:
    """Its output would be freed, and with it the truth."""
    await driven.hand()
    call_id = await driven.call()
    driven.hands.script["execute"] = [refuse(Reason.INTERNAL, "the daemon broke")]
    await driven.settle(call_id)
    await Calls(driven.driver, driven.fleet, driven.hub).claim_all()
    acknowledged = [c for each in driven.hands.asked_for("acknowledge") for c in each.call_ids]
    assert acknowledged == [call_id]
    arms = driven.hands.arms()
    assert arms.index("acknowledge") > arms.index("cancel")


async def test_a_call_stuck_at_its_hand_is_waited_for_only_so_long(driven: Stage) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_RUNNING)

    async def never(_: Any) -> AsyncGenerator[Any, None]:
        await asyncio.Event().wait()
        yield result("x")

    driven.hands.script["execute"] = [never]
    line = HandLine(driven.driver.transcript.hands["hand_1"], driven.driver, driven.fleet)
    with pytest.raises(TimeoutError):
        await hear_late(line, driven.driver, end_limit=0.05)
    assert late(driven, call_id) is None


def acknowledged(driven: Stage) -> list[list[str]]:
    """What the hand was told to free, request by request."""
    return [list(request.call_ids) for request in driven.hands.asked_for("acknowledge")]


async def test_a_late_result_of_which_the_hand_was_not_told_is_freed_at_the_next_look(
    driven: Stage,
) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    driven.hands.script["acknowledge"] = [UNLINKED]
    await driven.calls.hear_all()
    assert late(driven, call_id) is not None
    await driven.calls.hear_all()
    await driven.calls.hear_all()
    assert acknowledged(driven) == [[call_id], [call_id]], "again, and then no more"


async def test_a_late_result_whose_driver_died_before_it_was_freed_is_freed_by_the_next(
    driven: Stage,
) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    driven.hands.script["acknowledge"] = [UNLINKED]
    await driven.calls.hear_all()
    after = Calls(driven.driver, driven.fleet, driven.hub)
    await after.hear_all()
    await after.hear_all()
    assert acknowledged(driven) == [[call_id], [call_id]], "once by each"


async def test_a_result_of_which_a_living_hand_was_not_told_is_freed_at_the_next_look(
    driven: Stage,
) -> None:
    await driven.hand()
    await driven.calls.claim_all()
    call_id = await driven.call()
    driven.hands.script["acknowledge"] = [UNLINKED]
    await driven.settle(call_id)
    await driven.calls.claim_all()
    await driven.calls.claim_all()
    assert acknowledged(driven) == [[call_id], [call_id]]


async def test_a_call_of_which_a_living_hand_has_no_news_is_cancelled_there_once(
    driven: Stage,
) -> None:
    """However often its link is cut, and the hand claimed anew, from then on."""
    await driven.hand()
    first = await driven.call()
    driven.hands.script["execute"] = [refuse(Reason.INTERNAL, "the daemon broke")]
    await driven.settle(first)
    driven.hands.journal_id = "other"
    await driven.calls.claim_all()
    for _ in range(3):
        driven.hands.script["execute"] = [UNLINKED]
        await driven.settle(await driven.call())
    assert driven.hands.arms().count("cancel") == 1


async def test_a_lost_hand_of_which_its_daemon_has_nothing_is_asked_once(driven: Stage) -> None:
    await given_up(driven)
    driven.hands.script["claim"] = [refuse(Reason.HAND_NOT_FOUND, "no such hand")] * 3
    for _ in range(3):
        await driven.calls.hear_all()
    assert driven.hands.arms() == ["claim"]


async def test_of_many_calls_given_up_the_first_which_may_still_run_is_cancelled_and_all_are_heard(
    driven: Stage,
) -> None:
    await driven.hand(deadline=0.1 - ORPHAN_MARGIN)
    calls = [await driven.call(earlier=True) for _ in range(HEARD_AT_ONCE + 1)]
    driven.hands.linked = False
    await driven.settle(*calls)
    driven.hands.linked = True
    running = info(calls[0], hand_pb2.CALL_STATE_RUNNING)
    driven.hands.states[calls[0]] = running
    driven.hands.script["execute"] = [[result("[cancelled]", hand_pb2.OUTCOME_CANCELLED)]]
    await driven.calls.hear_all()
    assert [request.call_id for request in driven.hands.asked_for("cancel")] == calls
    assert late(driven, calls[0]) is not None
    assert late(driven, calls[-1]) is None
    await driven.calls.hear_all()
    await driven.calls.hear_all()
    assert all(late(driven, call_id) for call_id in calls)
    assert [len(request.call_ids) for request in driven.hands.asked_for("claim")] == [100, 1]


async def test_what_a_hand_refuses_to_free_is_told_again_until_it_is_freed(driven: Stage) -> None:
    await driven.hand()
    await driven.calls.claim_all()
    call_id = await driven.call()
    driven.hands.script["acknowledge"] = [refuse(Reason.INTERNAL, "the daemon broke")]
    await driven.settle(call_id)
    for _ in range(3):
        await driven.calls.claim_all()
    assert acknowledged(driven) == [[call_id], [call_id]]


async def test_one_call_that_still_runs_keeps_no_other_result_from_being_freed(
    driven: Stage,
) -> None:
    await driven.hand()
    line = HandLine(driven.driver.transcript.hands["hand_1"], driven.driver, driven.fleet)
    running = refuse(Reason.CALL_RUNNING, "call 'b' has no result yet")
    done: list[Message] = [hand_pb2.AcknowledgeResponse()]
    driven.hands.script["acknowledge"] = [running, done, running, done]
    await line.acknowledge(["a", "b", "c"])
    assert acknowledged(driven) == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert list(line.to_free) == ["b"]
    await line.acknowledge([])
    assert not line.to_free


async def test_what_a_hand_was_to_free_is_forgotten_when_the_hand_is_gone(driven: Stage) -> None:
    await driven.hand()
    line = HandLine(driven.driver.transcript.hands["hand_1"], driven.driver, driven.fleet)
    driven.hands.script["acknowledge"] = [refuse(Reason.HAND_GONE, "it ended")]
    await line.acknowledge(["a"])
    assert not line.to_free


def test_calls_that_were_given_up_are_all_kept_and_forgotten_with_their_hand() -> None:
    log = Log()
    log.say("go")
    log.provision("h1")
    hand = log.transcript.hands["h1"]
    calls: list[str] = []
    for number in range(150):
        calls += log.reply(log.ask(), calls=(f"c{number}",))
        call = log.transcript.calls[calls[-1]]
        told = settled(call, "interrupted", "silent", hand, given_up=True)
        log.add(told.type, told.data)
    assert [call.call_id for call in log.transcript.given_up_calls(hand)] == calls
    assert not log.transcript.settled_calls(hand), "what runs on has nothing to free"
    log.add("hand.released", {"hand_id": "h1", "name": "shell"})
    assert not log.transcript.given_up_calls(hand)


def test_a_late_result_is_taken_once_and_only_of_a_call_that_was_given_up() -> None:
    log = Log()
    log.say("go")
    log.provision("h1")
    (call,) = log.reply(log.ask(), calls=("a",))
    data = {"tool_use_id": call, "content": [{"type": "text", "text": "x"}], "hand_id": "h1"}
    log.add("hand.late_result", data)
    hand = log.transcript.hands["h1"]
    assert log.transcript.calls[call].late is None
    told = settled(log.transcript.calls[call], "interrupted", "silent", hand, given_up=True)
    log.add(told.type, told.data)
    assert [c.call_id for c in log.transcript.given_up_calls(hand)] == [call]
    log.reply(log.ask(), "so be it")
    assert not log.transcript.wants_model()
    log.add("hand.late_result", data)
    assert log.transcript.wants_model()
    assert not log.transcript.given_up_calls(hand)
    log.reply(log.ask(), "aha")
    log.add("hand.late_result", data)
    assert not log.transcript.wants_model()


def test_a_hand_lost_and_released_later_means_nothing_from_the_loss_on() -> None:
    log = Log()
    log.say("go")
    log.provision("h1")
    log.add("hand.lost", {"hand_id": "h1", "name": "shell", "reason": "x"})
    (call,) = log.reply(log.ask(), calls=("a",))
    log.add("hand.released", {"hand_id": "h1", "name": "shell"})
    assert log.transcript.hand_of(log.transcript.calls[call]) is None


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([], False),
        ([("agent.tool_result", {"tool_use_id": "c"})], False),
        ([("agent.tool_result", {"tool_use_id": "c", "given_up": True})], True),
        (
            [
                ("agent.tool_result", {"tool_use_id": "c", "given_up": True}),
                ("hand.late_result", {"tool_use_id": "c"}),
            ],
            False,
        ),
        ([("hand.lost", {"given_up": True})], True),
        ([("hand.lost", {"given_up": True}), ("hand.released", {})], False),
        ([("hand.lost", {"reason": "its supervisor died"})], False),
    ],
)
def test_a_session_is_woken_for_what_it_gave_up_and_has_not_heard_of(
    log: list[tuple[str, dict[str, Any]]], expected: bool
) -> None:
    events = [
        types_pb2.Event(type=kind, data=json.dumps({"hand_id": "h", **data}).encode())
        for kind, data in log
    ]
    assert waits(events, "h") is expected
    assert not waits(events, "another")


async def test_a_late_outcome_that_is_not_known_here_is_no_news(driven: Stage) -> None:
    call_id = await given_up(driven)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    odd = hand_pb2.Result.FromString(bytes([8, 99]))
    driven.hands.script["execute"] = [[hand_pb2.ExecuteResponse(result=odd)]]
    await driven.calls.hear_all()
    assert late(driven, call_id) is None
