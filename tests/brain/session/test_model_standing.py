"""What the log says of the models is folded the same whoever folds it."""

from typing import Any

import pytest

from brain.session import model_kinds as kinds
from brain.session.model_standing import STRUCK_MAX, Choice, Standing

AGENT = {"model": "big", "fallback_model": "small"}
RUNNING: tuple[str, dict[str, Any]] = ("session.status_running", {})


def failed(kind: str, **error: Any) -> tuple[str, dict[str, Any]]:
    """A model call that ended badly."""
    said = {"type": kind, "message": "why", "retryable": True, **error}
    return "span.model_request_end", {"is_error": True, "error": said}


def replied(stop_reason: str = "end_turn") -> tuple[str, dict[str, Any]]:
    """A model call that ended well."""
    return "span.model_request_end", {"is_error": False, "stop_reason": stop_reason}


def fold(*events: tuple[str, dict[str, Any]]) -> Standing:
    standing = Standing()
    for kind, data in events:
        standing.apply(kind, data)
    return standing


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([failed(kinds.OVERLOADED)], "overloaded"),
        ([failed(kinds.FAILED)], ""),
        ([failed(kinds.FAILED)] * STRUCK_MAX, "2 failures of the service"),
        ([failed(kinds.TIMED_OUT), failed(kinds.CUT)], "2 failures of the service"),
        ([failed(kinds.FAILED), replied(), failed(kinds.FAILED)], "2 failures of the service"),
        ([failed(kinds.FAILED, retryable=False)] * 3, ""),
        ([failed(kinds.RATE_LIMITED)] * 3, ""),
        ([failed(kinds.RATE_LIMITED, retry_after=3600)], "rate limited for 3600 s"),
        ([failed(kinds.AUTHENTICATION)] * 3, ""),
        ([failed(kinds.OVERLOADED), RUNNING], ""),
    ],
)
def test_when_the_fallback_model_takes_over(
    events: list[tuple[str, dict[str, Any]]], why: str
) -> None:
    assert fold(RUNNING, *events).wants_fallback(AGENT) == why
    assert fold(RUNNING, *events).wants_fallback({"model": "big"}) == ""


def test_the_fallback_holds_for_the_turn_and_the_next_turn_begins_with_the_first_model() -> None:
    taken = [RUNNING, failed(kinds.OVERLOADED), ("context.fallback_model", {"model": "small"})]
    standing = fold(*taken, replied(), ("user.message", {"content": []}))
    assert standing.choice(AGENT) == Choice("small", "")
    assert standing.wants_fallback(AGENT) == "", "it has"
    standing = fold(*taken, replied(), ("session.status_idle", {}), RUNNING)
    assert standing.choice(AGENT) == Choice("big", "")


def test_a_fallback_may_be_at_another_provider() -> None:
    agent = {
        "model": "big",
        "provider": "anthropic",
        "fallback_model": {"model": "small", "provider": "bedrock"},
    }
    standing = fold(("context.fallback_model", {}))
    assert standing.choice(agent) == Choice("small", "bedrock")
    same = {**agent, "fallback_model": {"model": "small"}}
    assert standing.choice(same) == Choice("small", "anthropic")


def test_a_feature_is_missing_at_a_provider_or_at_one_of_its_models() -> None:
    standing = fold(
        ("context.feature_missing", {"provider": "p", "feature": "cache_control"}),
        ("context.feature_missing", {"provider": "p", "feature": "thinking", "model": "old"}),
    )
    assert standing.lacks(Choice("old", "p")) == {"cache_control", "thinking"}
    assert standing.lacks(Choice("new", "p")) == {"cache_control"}
    assert standing.lacks(Choice("old", "other")) == set()


def test_a_failure_stands_until_something_was_said_or_done_about_it() -> None:
    standing = fold(RUNNING, failed(kinds.RATE_LIMITED, retry_after=3.0))
    assert standing.failure is not None
    assert (standing.failure.kind, standing.failure.retry_after) == (kinds.RATE_LIMITED, 3.0)
    for event in (
        ("session.error", {"error": {"type": kinds.RATE_LIMITED}}),
        ("span.model_request_start", {"through": 1}),
        ("context.feature_missing", {"provider": "p", "feature": "thinking"}),
        ("context.media_refused", {"sha256": ["d"], "reason": "r"}),
        RUNNING,
        replied(),
    ):
        assert fold(RUNNING, failed(kinds.RATE_LIMITED), event).failure is None
    assert fold(failed(kinds.INTERRUPTED)).failure is None
    other = ("session.error", {"error": {"type": "hand_unavailable_error"}})
    assert fold(failed(kinds.FAILED), other).failure is not None


def test_tries_are_counted_by_kind_since_the_last_reply() -> None:
    empty, cut = failed(kinds.EMPTY), failed(kinds.CUT)
    standing = fold(empty, cut, empty)
    assert standing.failure is not None
    assert standing.failure.tries == 2
    standing = fold(empty, replied(), empty)
    assert standing.failure is not None
    assert standing.failure.tries == 1


def test_pauses_in_a_row_are_counted() -> None:
    pause = replied("pause_turn")
    assert fold(pause, pause).pauses == 2
    assert fold(pause, replied("tool_use"), pause).pauses == 1


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([RUNNING, replied(), ("session.status_idle", {})], False),
        ([RUNNING, replied("pause_turn")], True),
        ([RUNNING, failed(kinds.FAILED)], True),
        ([RUNNING, failed(kinds.OVERLOADED), ("context.fallback_model", {})], True),
        ([("context.feature_missing", {"provider": "p", "feature": "thinking"})], False),
    ],
)
def test_what_a_turn_forgets_as_it_begins_is_known_before(
    events: list[tuple[str, dict[str, Any]]], left: bool
) -> None:
    standing = fold(*events)
    assert standing.of_last_turn() == left
    begun = fold(*events, RUNNING)
    assert (standing == begun) == (not left)
    assert not begun.of_last_turn()
