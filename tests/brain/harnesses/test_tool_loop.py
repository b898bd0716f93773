"""The tool loop decides from the log alone, so any driver goes on where one died."""

from brain.effects import CallModel, Emit, Execute, Failed, Finish, Replied, Sleep
from brain.harnesses.tool_loop import MAX_FAILURES, tool_loop
from tests.brain.logs import Log


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
    harness = tool_loop(log.transcript)
    next(harness)
    request = log.ask()
    log.add(
        "span.model_request_end",
        {
            "model_request_start_id": request,
            "is_error": True,
            "error": {"type": "model_overloaded_error"},
        },
    )
    said = harness.send(Failed("model_overloaded_error", "busy", True, retry_after=2.0))
    assert isinstance(said, Emit)
    assert said.data["error"]["retry_status"] == {"type": "retrying"}
    assert harness.send(1) == Sleep(2.0)
    assert isinstance(harness.send(None), CallModel)


def test_a_model_that_keeps_failing_ends_the_turn() -> None:
    log = Log()
    log.say("go")
    harness = tool_loop(log.transcript)
    effect = next(harness)
    for _ in range(MAX_FAILURES):
        assert isinstance(effect, CallModel)
        request = log.ask()
        log.add(
            "span.model_request_end",
            {
                "model_request_start_id": request,
                "is_error": True,
                "error": {"type": "model_overloaded_error"},
            },
        )
        effect = harness.send(Failed("model_overloaded_error", "busy", retryable=True))
        assert isinstance(effect, Emit)
        effect = harness.send(1)
        if isinstance(effect, Sleep):
            effect = harness.send(None)
    assert isinstance(effect, Finish)
    assert effect.stop_reason == "retries_exhausted"


def test_a_call_nobody_may_retry_ends_the_turn_at_once() -> None:
    log = Log()
    log.say("go")
    harness = tool_loop(log.transcript)
    next(harness)
    said = harness.send(Failed("authentication_error", "no key", retryable=False))
    assert isinstance(said, Emit)
    assert said.data["error"]["retry_status"] == {"type": "exhausted"}
    through = log.transcript.head
    log.say("came while the error was appended")
    assert harness.send(1) == Finish("retries_exhausted", through=through)


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


def test_a_service_that_asks_for_a_day_is_not_waited_for_that_long() -> None:
    log = Log()
    log.say("go")
    harness = tool_loop(log.transcript)
    next(harness)
    harness.send(Failed("model_rate_limited_error", "slow down", True, retry_after=86400))
    assert harness.send(1) == Sleep(30.0)
