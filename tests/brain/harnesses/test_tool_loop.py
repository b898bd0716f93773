"""The tool loop decides from the log alone, so any driver goes on where one died."""

from typing import Any

from brain.effects import CallModel, Emit, Execute, Failed, Finish, Replied, Sleep
from brain.harnesses.tool_loop import MAX_FAILURES, MAX_PAUSES, tool_loop
from brain.session import model_kinds as kinds
from tests.brain.logs import AGENT, Log


def emitted(log: Log, effect: object) -> dict[str, Any]:
    """An event that a harness asked for is in the log; its data."""
    assert isinstance(effect, Emit), effect
    log.add(effect.type, effect.data)
    return effect.data


def finished(effect: object) -> Finish:
    """The end of a turn."""
    assert isinstance(effect, Finish), effect
    return effect


def test_it_runs_all_open_calls_together_then_answers_their_results() -> None:
    log = Log()
    log.say("go")
    harness = tool_loop(log.transcript)
    next(harness)
    calls = log.reply(log.ask(), calls=("a", "b"))
    effect = harness.send(Replied("tool_use"))
    assert effect == Execute(tuple(calls))
    for call in calls:
        log.result(call)
    assert isinstance(harness.send(None), CallModel)
    log.reply(log.ask(), "done")
    assert harness.send(Replied("end_turn")) == Finish("end_turn")


def test_a_new_driver_first_settles_the_calls_it_finds_open() -> None:
    log = Log()
    log.say("go")
    first, second = log.reply(log.ask(), calls=("a", "b"))
    log.result(first)
    assert next(tool_loop(log.transcript)) == Execute((second,))


def test_a_new_driver_finds_nothing_to_do_when_nothing_is_open() -> None:
    log = Log()
    log.say("go")
    log.reply(log.ask(), "done")
    assert next(tool_loop(log.transcript)) == Finish("end_turn")


def test_a_failed_model_call_is_said_waited_for_and_made_again() -> None:
    log = Log()
    log.say("go")
    log.fails(log.ask(), retry_after=2.0)
    harness = tool_loop(log.transcript)
    said = emitted(log, next(harness))
    assert said["error"]["type"] == "model_overloaded_error"
    assert said["error"]["retry_status"] == {"type": "retrying"}
    assert harness.send(1) == Sleep(2.0)
    assert isinstance(harness.send(None), CallModel)


def test_waits_grow_and_a_driver_that_comes_after_the_failure_says_it_in_the_others_stead() -> None:
    log = Log()
    log.say("go")
    waits = []
    for _ in range(MAX_FAILURES - 1):
        log.fails(log.ask(), kinds.FAILED)
        harness = tool_loop(log.transcript)
        emitted(log, next(harness))
        waits.append(harness.send(1))
    assert waits == [Sleep(1.0), Sleep(2.0), Sleep(4.0), Sleep(8.0)]


def test_a_model_that_keeps_failing_ends_the_turn() -> None:
    log = Log()
    log.say("go")
    for _ in range(MAX_FAILURES):
        log.fails(log.ask())
    harness = tool_loop(log.transcript)
    said = emitted(log, next(harness))
    assert said["error"]["retry_status"] == {"type": "exhausted"}
    assert finished(harness.send(1)).stop_reason == "retries_exhausted"


def test_a_call_nobody_may_retry_ends_the_turn_at_once() -> None:
    log = Log()
    log.say("go")
    log.fails(log.ask(), "authentication_error", retryable=False)
    through = log.transcript.head
    effect = next(tool_loop(log.transcript))
    log.say("came while the error was appended")
    said = emitted(log, effect)
    assert said["error"]["retry_status"] == {"type": "exhausted"}
    # A driver that takes over right here ends the turn as well, and asks no model.
    assert next(tool_loop(log.transcript)) == Finish("retries_exhausted", through=through)


def test_an_empty_reply_is_asked_for_once_more_and_then_ends_the_turn_in_words() -> None:
    log = Log()
    log.say("go")
    log.fails(log.ask(), kinds.EMPTY)
    harness = tool_loop(log.transcript)
    emitted(log, next(harness))
    assert isinstance(harness.send(1), Sleep)
    log.fails(log.ask(), kinds.EMPTY)
    emitted(log, harness.send(None))
    end = finished(harness.send(1))
    assert (end.stop_reason, end.details) == ("end_turn", {"type": "empty_reply"})


def test_a_feature_or_an_image_left_out_costs_no_try_and_no_wait() -> None:
    log = Log()
    log.say("go")
    for n in range(MAX_FAILURES + 1):
        log.fails(log.ask(), kinds.FEATURE)
        log.add("context.feature_missing", {"provider": "", "feature": f"f{n}"})
        log.fails(log.ask(), kinds.MEDIA)
        log.add("context.media_refused", {"sha256": [f"d{n}"], "reason": "r"})
    assert isinstance(next(tool_loop(log.transcript)), CallModel)


def test_after_an_overload_the_fallback_model_is_asked_at_once_until_the_turn_ends() -> None:
    log = Log()
    agent = {**AGENT, "fallback_model": {"model": "small", "provider": "bedrock"}}
    log.add("session.updated", {"agent": agent})
    log.add("session.status_running")
    log.say("go")
    log.fails(log.ask())
    harness = tool_loop(log.transcript)
    assert emitted(log, next(harness))["error"]["retry_status"] == {"type": "retrying"}
    said = emitted(log, harness.send(1))
    assert said == {"from": "m", "to": "small", "because": "overloaded"}
    call = harness.send(1)
    assert isinstance(call, CallModel)
    assert (call.request["model"], call.provider) == ("small", "bedrock")
    made = log.reply(log.ask(), calls=("x",))
    log.result(made[0])
    call = next(tool_loop(log.transcript))
    assert isinstance(call, CallModel)
    assert call.request["model"] == "small", "also for a driver that takes over"
    log.reply(log.ask(), "done")
    log.add("session.status_idle", {"through": log.transcript.head})
    log.say("next")
    log.add("session.status_running")
    call = next(tool_loop(log.transcript))
    assert isinstance(call, CallModel)
    assert (call.request["model"], call.provider) == ("m", "")


def test_a_paused_reply_goes_on_where_it_stands_and_not_for_ever() -> None:
    log = Log()
    log.say("go")
    harness = tool_loop(log.transcript)
    call = next(harness)
    for _ in range(MAX_PAUSES):
        log.reply(log.ask(), "searching", stop="pause_turn")
        call = harness.send(Replied("pause_turn"))
        assert isinstance(call, CallModel)
        assert call.request["messages"][-1]["role"] == "assistant"
    log.reply(log.ask(), "searching", stop="pause_turn")
    assert harness.send(Replied("pause_turn")) == Finish("end_turn", {"type": "pause_turn"})


def test_a_paused_reply_does_not_go_on_after_an_interrupt() -> None:
    log = Log()
    log.say("go")
    log.reply(log.ask(), "searching", stop="pause_turn")
    log.add("user.interrupt")
    assert isinstance(next(tool_loop(log.transcript)), Finish)


def test_an_interrupted_turn_finishes_without_another_call() -> None:
    log = Log()
    log.say("go")
    harness = tool_loop(log.transcript)
    next(harness)
    log.add("user.interrupt")
    assert harness.send(Failed("interrupted", "stop", retryable=False)) == Finish("end_turn")


def test_a_refusal_is_the_stop_reason() -> None:
    log = Log()
    log.say("go")
    harness = tool_loop(log.transcript)
    next(harness)
    log.reply(log.ask(), "I will not", stop="refusal")
    assert harness.send(Replied("refusal")) == Finish("refusal")


def test_brains_that_keep_dying_while_the_model_is_asked_end_the_turn_too() -> None:
    log = Log()
    log.say("go")
    for _ in range(MAX_FAILURES + 1):
        assert isinstance(next(tool_loop(log.transcript)), CallModel)
        log.ask()
    assert next(tool_loop(log.transcript)) == Finish("retries_exhausted")


def test_a_reply_cut_at_the_limit_says_so() -> None:
    log = Log()
    log.say("go")
    log.reply(log.ask(), "half a", stop="max_tokens")
    assert next(tool_loop(log.transcript)) == Finish("end_turn", {"type": "max_tokens"})


def test_any_other_stop_reason_is_said() -> None:
    log = Log()
    log.say("go")
    request = log.ask()
    ended = {"model_request_start_id": request, "stop_reason": "stop_sequence"}
    log.add("span.model_request_end", ended | {"stop_sequence": "END"})
    details = {"type": "stop_sequence", "stop_sequence": "END"}
    assert next(tool_loop(log.transcript)) == Finish("end_turn", details)
    log.say("more")
    log.reply(log.ask(), "x", stop="of_a_kind_to_come")
    assert next(tool_loop(log.transcript)) == Finish("end_turn", {"type": "of_a_kind_to_come"})


def test_a_service_is_waited_for_as_it_asks_but_not_for_a_day() -> None:
    for asked, effect in ((200.0, Sleep(200.0)), (86400.0, None)):
        log = Log()
        log.say("go")
        log.fails(log.ask(), kinds.RATE_LIMITED, retry_after=asked)
        harness = tool_loop(log.transcript)
        said = emitted(log, next(harness))
        if effect is not None:
            assert harness.send(1) == effect
        else:
            assert "asks to wait for 86400 s" in said["error"]["message"]
            assert finished(harness.send(1)).stop_reason == "retries_exhausted"
