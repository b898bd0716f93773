"""A turn ends at the idle that belongs to it, and its stop reason is the exit code."""

import pytest

from carpal.operator.outcome import Turn
from tests.operator.log import OPERATOR, Log, finished_turn, text


def ended_at(turn: Turn, log: Log) -> int | None:
    """Position of the event that ended the turn."""
    return next((event.position for event in log.events if turn.take(event)), None)


def test_a_finished_turn_has_its_stop_reason_events_seconds_and_usage() -> None:
    turn = Turn(message=2)
    assert ended_at(turn, finished_turn()) == 11
    assert turn.stop_reason == "end_turn"
    assert turn.events == 11
    assert turn.seconds == pytest.approx(2.4)
    assert turn.usage == {"input_tokens": 10, "output_tokens": 4}


def test_a_turn_tells_what_was_said_how_calls_ended_and_what_was_missing() -> None:
    log = Log()
    for hand in ("gpu", "box"):
        error = {"type": "hand_unavailable_error", "message": f"hand '{hand}': none"}
        log.add("session.error", {"error": error})
    log.add("context.tools", {"hand": "box"})
    log.add("agent.message", text("I try."))
    for outcome in ("ok", "error", "ok"):
        log.add("agent.tool_result", {"outcome": outcome})
    log.add("hand.provision_failed", {"name": "web", "message": "no image"})
    log.add("user.interrupt", source=OPERATOR)
    log.add("agent.message", text("I stop."))
    turn = Turn(message=0)
    assert ended_at(turn, log) is None
    report = turn.report("sesn_1")
    assert report["tool_results"] == {"ok": 2, "error": 1}
    assert (report["text"], report["interrupted"]) == ("I stop.", True)
    assert turn.missing_hands == {"gpu": "none", "web": "no image"}


def test_usage_adds_up_over_requests_and_skips_what_is_no_count() -> None:
    log = Log()
    for _ in range(2):
        log.add("span.model_request_end", {"model_usage": {"input_tokens": 3, "speed": "fast"}})
    log.add("span.model_request_end", {"model_usage": None})
    turn = Turn(message=0)
    assert ended_at(turn, log) is None
    assert turn.usage == {"input_tokens": 6}


def test_an_idle_that_missed_the_message_belongs_to_the_turn_before() -> None:
    log = Log()
    log.add("user.message", text("also this"))
    log.add("session.status_idle", {"stop_reason": {"type": "end_turn"}})
    log.add("session.status_running")
    log.add("session.status_idle", {"stop_reason": {"type": "end_turn"}})
    assert ended_at(Turn(message=1), log) == 4


def test_a_message_in_the_middle_of_a_turn_is_seen_by_the_next_request() -> None:
    log = Log()
    log.add("user.message", text("also this"))
    log.add("span.model_request_start", {"through": 1})
    log.add("session.status_idle", {"stop_reason": {"type": "end_turn"}})
    assert ended_at(Turn(message=1), log) == 3


def test_a_session_parked_before_any_request_ends_the_turn() -> None:
    log = Log()
    log.add("user.message", text("hi"))
    log.add("session.error", {"error": {"retry_status": {"type": "exhausted"}}})
    log.add("session.status_idle", {"stop_reason": {"type": "retries_exhausted"}})
    turn = Turn(message=1)
    assert ended_at(turn, log) == 3
    assert turn.exit_code == 1


def test_an_idle_says_itself_how_far_its_driver_had_read() -> None:
    log = Log()
    log.add("user.message", text("hi"))
    log.add("session.status_idle", {"stop_reason": {"type": "end_turn"}, "through": 0})
    log.add("session.status_idle", {"stop_reason": {"type": "end_turn"}, "through": 1})
    assert ended_at(Turn(message=1), log) == 3


def test_a_turn_whose_end_is_known_ends_there_without_an_idle() -> None:
    log = Log()
    log.add("user.message", text("hi"))
    log.add("user.interrupt")
    turn = Turn(message=1)
    turn.last = 2
    assert ended_at(turn, log) == 2
    assert (turn.position, turn.stop_reason) == (2, "")


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("end_turn", 0),
        ("requires_action", 10),
        ("budget_reached", 11),
        ("refusal", 1),
        ("retries_exhausted", 1),
        ("terminated", 1),
        ("something newer", 1),
    ],
)
def test_each_stop_reason_has_its_exit_code(reason: str, code: int) -> None:
    turn = Turn(1)
    turn.stop_reason = reason
    assert turn.exit_code == code


def test_a_turn_that_ended_well_without_a_hand_it_was_given_is_a_failure() -> None:
    turn = Turn(1)
    turn.stop_reason = "end_turn"
    turn.missing_hands["build"] = "no connected daemon offers it"
    assert turn.exit_code == 1
