"""A harness over a recorded log: what it would do now, held against what is there."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from brain.context.request import next_reply
from brain.effects import CallModel, Effect, Emit, Execute, Finish, Harness, HarnessType
from brain.harnesses.tool_loop import HARNESS
from brain.recorded.replay import Difference, Replay, Replayed
from brain.session.transcript import Transcript
from carpal.errors import CarpalError
from tests.brain.recorded.recorder import Recorder


def replay(recorder: Recorder, kind: HarnessType = HARNESS) -> Replayed:
    return Replay(recorder.recording(), kind, "odd").run()


def two_turns() -> Recorder:
    recorder = Recorder()
    recorder.say("go")
    recorder.turn(calls=("a", "b"), meanwhile="and c")
    recorder.turn("done")
    recorder.idle()
    recorder.say("more")
    recorder.turn("done again")
    recorder.idle()
    return recorder


def test_the_same_harness_decides_as_recorded() -> None:
    assert replay(two_turns()) == Replayed(decisions=5, difference=None)


def test_a_failure_that_was_retried_is_replayed_with_its_error_event() -> None:
    recorder = Recorder()
    recorder.say("go")
    recorder.fail("model_overloaded_error", retryable=True)
    status = {"type": "retrying"}
    error = {"type": "model_overloaded_error", "message": "no", "retry_status": status}
    error["layer"] = "model"
    recorder.add("session.error", {"error": error, "through": recorder.transcript.head})
    recorder.turn("done")
    recorder.idle()
    assert replay(recorder) == Replayed(decisions=4, difference=None)


def test_a_brain_that_died_while_the_model_was_asked_is_replayed_as_a_new_start() -> None:
    recorder = Recorder()
    recorder.say("go")
    recorder.start()
    recorder.turn("done")
    recorder.idle()
    assert replay(recorder).difference is None


def test_a_log_that_ends_in_the_middle_of_a_turn_has_no_difference() -> None:
    recorder = Recorder()
    recorder.say("go")
    recorder.turn(calls=("a",))
    assert replay(recorder) == Replayed(decisions=1, difference=None)


def test_another_request_is_the_first_difference() -> None:
    def shouts(transcript: Transcript) -> Harness:
        while True:
            call = next_reply(transcript)
            if len(call.request["messages"]) > 1:
                call.request["system"] = "SHOUT"
            yield call
            yield Execute(tuple(each.call_id for each in transcript.open_calls()))

    recorder = two_turns()
    parted = replay(recorder, HarnessType("1", shouts)).difference
    assert parted is not None
    second = recorder.recording().asked()[1].start
    assert parted.position == second.position
    assert second.data["request_sha256"] in parted.recorded


def test_another_decision_is_the_first_difference() -> None:
    def gives_up(_: Transcript) -> Harness:
        yield Finish("refusal")

    recorder = two_turns()
    start = recorder.recording().asked()[0].start
    assert replay(recorder, HarnessType("1", gives_up)).difference == Difference(
        start.position, "a model call for a reply", "idle for refusal"
    )


def test_an_event_that_was_not_recorded_is_the_first_difference() -> None:
    def notes(transcript: Transcript) -> Harness:
        yield Emit("context.note", {"text": "x"})
        yield next_reply(transcript)

    parted = replay(two_turns(), HarnessType("1", notes)).difference
    assert parted is not None
    assert parted.now == "an event context.note"


def test_a_call_for_another_purpose_is_a_difference() -> None:
    def asks(transcript: Transcript) -> Harness:
        made = next_reply(transcript)
        yield CallModel(made.request, made.policy, made.through, purpose="aside")

    parted = replay(two_turns(), HarnessType("1", asks)).difference
    assert parted is not None
    assert parted.now == "a model call for a aside"


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), ValueError("no")])
def test_a_harness_that_raises_is_named_in_place_of_a_traceback(error: BaseException) -> None:
    def thrown() -> Effect:
        raise error

    def raises(_: Transcript) -> Harness:
        yield thrown()

    def at_once(_: Transcript) -> Harness:
        raise error

    for start in (raises, at_once):
        with pytest.raises(CarpalError, match="'odd' is at fault") as caught:
            replay(two_turns(), HarnessType("1", start))
        assert f"it raised {type(error).__name__}" in caught.value.message


def test_a_harness_that_waits_for_a_process_cannot_be_replayed() -> None:
    async def waits(_: Any) -> AsyncGenerator[Effect, Any]:
        yield Finish("end_turn")

    with pytest.raises(CarpalError, match="cannot be replayed"):
        replay(two_turns(), HarnessType("1", waits))
