"""The transcript says what the log says: open calls, hands, what waits for the model."""

from typing import Any

import pytest

from brain.session.entries import Entry
from brain.session.transcript import Transcript
from tests.brain.logs import Log


def test_a_new_message_wants_the_model_and_its_answer_settles_it() -> None:
    log = Log()
    log.say("hello")
    assert log.transcript.wants_model()
    log.reply(log.ask(), "hi")
    assert not log.transcript.wants_model()


def test_a_message_that_came_while_the_model_wrote_is_still_to_be_answered() -> None:
    log = Log()
    log.say("first")
    request = log.ask()
    log.say("second")
    log.reply(request, "to the first")
    assert log.transcript.wants_model()


def test_a_call_is_open_until_its_first_result_and_a_second_changes_nothing() -> None:
    log = Log()
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("true",))
    assert [c.call_id for c in log.transcript.open_calls()] == [call]
    log.result(call, "true outcome")
    log.result(call, "another", outcome="error")
    assert not log.transcript.open_calls()
    result = log.transcript.calls[call].result
    assert result is not None
    assert result["content"][0]["text"] == "true outcome"
    assert log.transcript.wants_model()


def test_results_of_calls_made_before_an_interrupt_want_no_model() -> None:
    log = Log()
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("sleep 9",))
    log.add("user.interrupt")
    assert log.transcript.stopped(log.transcript.calls[call])
    log.result(call, outcome="cancelled")
    assert not log.transcript.wants_model()
    log.say("go on")
    assert log.transcript.wants_model()


def test_a_model_call_whose_driver_died_is_made_again() -> None:
    log = Log()
    log.say("go")
    dead = log.ask()
    assert log.transcript.open_request() is not None
    log.reply(log.ask(), "here")
    assert log.transcript.open_request() is None
    assert log.transcript.requests[dead].failed
    assert not log.transcript.wants_model()


def test_failures_count_up_and_start_over_with_a_reply_or_a_message() -> None:
    log = Log()
    log.say("go")
    for count in (1, 2):
        request = log.ask()
        log.add(
            "span.model_request_end",
            {
                "model_request_start_id": request,
                "is_error": True,
                "error": {"type": "model_overloaded_error"},
            },
        )
        assert log.transcript.failures == count
    log.say("again")
    assert log.transcript.failures == 0


def test_an_interrupted_model_call_is_no_failure() -> None:
    log = Log()
    log.say("go")
    request = log.ask()
    log.add("user.interrupt")
    log.add(
        "span.model_request_end",
        {"model_request_start_id": request, "is_error": True, "error": {"type": "interrupted"}},
    )
    assert log.transcript.failures == 0
    assert not log.transcript.wants_model()


def test_a_turn_given_up_is_not_taken_up_again_without_a_new_message() -> None:
    log = Log()
    log.say("go")
    log.add(
        "session.status_idle",
        {"stop_reason": {"type": "retries_exhausted"}, "through": log.transcript.head},
    )
    assert not log.transcript.wants_model()


def test_a_call_belongs_to_the_hand_its_name_meant_at_its_position() -> None:
    log = Log()
    log.say("go")
    log.provision("h1")
    (call,) = log.reply(log.ask(), calls=("a",))
    log.add("hand.lost", {"hand_id": "h1", "name": "shell", "reason": "gone"})
    log.provision("h2")
    hand = log.transcript.hand_of(log.transcript.calls[call])
    assert hand is not None
    assert hand.hand_id == "h1", "it never moves to another hand"


def test_a_call_made_before_any_hand_belongs_to_the_first_provisioned_afterwards() -> None:
    log = Log()
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("a",))
    assert log.transcript.hand_of(log.transcript.calls[call]) is None
    log.provision("b1", name="build")
    log.provision("h1")
    log.add("hand.lost", {"hand_id": "h1", "name": "shell", "reason": "gone"})
    log.provision("h2")
    hand = log.transcript.hand_of(log.transcript.calls[call])
    assert hand is not None
    assert hand.hand_id == "h1"


def test_a_hand_asked_for_by_a_driver_that_died_is_found_again() -> None:
    log = Log()
    log.request_hand("h1")
    requested = log.transcript.requested_hand("shell")
    assert requested is not None
    assert requested.hand_id == "h1"
    log.add("hand.provision_failed", {"hand_id": "h1", "name": "shell", "reason": "X"})
    assert log.transcript.requested_hand("shell") is None


def test_results_raise_the_highest_journal_position_the_log_noted() -> None:
    log = Log()
    log.provision("h1", sequence=3)
    log.say("go")
    first, second = log.reply(log.ask(), calls=("a", "b"))
    log.result(first, hand_id="h1", sequence=9)
    log.result(second, hand_id="h1", sequence=7)
    assert log.transcript.hands["h1"].sequence == 9


def test_an_unknown_event_is_skipped_unless_it_must_be_understood() -> None:
    log = Log()
    log.add("future.thing")
    assert not log.transcript.unknown
    log.add("future.thing", must=True)
    assert [entry.type for entry in log.transcript.unknown] == ["future.thing"]


def test_a_gap_in_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="came after"):
        Transcript().apply(Entry(2, "x", "user.message", {}))


def test_an_interrupt_that_came_while_the_model_wrote_stops_what_it_called() -> None:
    log = Log()
    log.say("go")
    request = log.ask()
    log.add("user.interrupt")
    (call,) = log.reply(request, calls=("rm -r x",))
    assert log.transcript.stopped(log.transcript.calls[call])


@pytest.mark.parametrize(
    "data", [{}, {"content": "text"}, {"content": ["text"]}, {"content": [{"type": "text"}]}]
)
def test_a_message_that_is_none_is_passed_over_and_kept_for_saying_so(data: dict[str, Any]) -> None:
    log = Log()
    log.add("user.message", data)
    assert not log.transcript.wants_model()
    assert [entry.position for entry in log.transcript.malformed] == [2]
    log.say("a good one")
    assert log.transcript.wants_model()


def test_an_event_whose_data_was_erased_does_not_stop_the_fold() -> None:
    log = Log()
    log.say("go")
    request = log.ask()
    log.add("agent.tool_use", {})
    log.add("agent.tool_result", {})
    log.reply(request, "done")
    assert not log.transcript.wants_model()


def test_hands_that_may_exist_are_all_to_be_released() -> None:
    log = Log()
    log.request_hand("h1")
    log.provision("h2")
    log.request_hand("h3")
    log.add("hand.provision_failed", {"hand_id": "h3", "name": "shell", "reason": "X"})
    log.add("hand.released", {"hand_id": "h2", "name": "shell"})
    assert [hand.hand_id for hand in log.transcript.unreleased_hands()] == ["h1", "h3"]


@pytest.mark.parametrize("hands", [[], {"a": "process"}, {"a": {}}, {"a": {"type": 1}}])
def test_an_update_that_is_none_leaves_agent_and_hands_as_they_were(hands: Any) -> None:
    log = Log()
    log.add("session.updated", {"agent": {"model": "other"}, "hands": hands or "none"})
    assert log.transcript.agent["model"] == "m"
    assert list(log.transcript.hand_specs) == ["shell", "build"]
    assert len(log.transcript.malformed) == 1


def test_a_fork_has_none_of_the_hands_and_no_open_call_of_the_other_session() -> None:
    log = Log(inherited=7)
    log.say("go")
    log.provision("h1")
    (call,) = log.reply(log.ask(), calls=("a",))
    assert len(log.entries) == 7
    transcript = log.transcript
    assert [c.call_id for c in transcript.open_calls()] == [call]
    assert transcript.not_inherited(transcript.calls[call])
    assert transcript.unreleased_hands() == []
    log.result(call, outcome="not_inherited")
    log.provision("h2")
    (own,) = log.reply(log.ask(), calls=("b",))
    assert not transcript.not_inherited(transcript.calls[own])
    hand = transcript.hand_of(transcript.calls[own])
    assert hand is not None
    assert hand.hand_id == "h2"


def test_a_fork_has_spent_nothing_and_nobodys_approval_passes_to_it() -> None:
    log = Log(inherited=7)
    log.say("go")
    reserved = {"model_requests": 1, "output_tokens": 100}
    request = log.add("span.model_request_start", {"through": 2, "reserved": reserved})
    use = {"name": "bash", "input": {}, "hand": "shell", "model_request_start_id": request}
    call = log.add("agent.tool_use", {**use, "evaluated_permission": "ask"})
    transcript = log.transcript
    assert transcript.budget.spent == reserved
    log.add("span.model_request_end", {"model_request_start_id": request})
    log.add("session.status_idle", {"stop_reason": {"type": "requires_action"}})
    log.add("session.error")
    assert transcript.head == transcript.inherited
    assert not transcript.budget.spent
    assert not transcript.waits(transcript.calls[call]), "it is the other session's"
    assert transcript.has_work(), "it is settled as not inherited"


def test_a_permission_that_is_not_known_here_needs_a_person() -> None:
    log = Log()
    log.say("go")
    use = {"name": "bash", "input": {}, "hand": "shell", "model_request_start_id": log.ask()}
    call = log.add("agent.tool_use", {**use, "evaluated_permission": "auto"})
    assert [each.call_id for each in log.transcript.waiting_calls()] == [call]


def test_an_allowed_call_is_of_the_hand_that_its_name_meant_when_it_was_allowed() -> None:
    log = Log()
    log.say("go")
    log.provision("h1")
    use = {"name": "bash", "input": {}, "hand": "shell", "model_request_start_id": log.ask()}
    call = log.add("agent.tool_use", {**use, "evaluated_permission": "ask"})
    log.add("hand.released", {"hand_id": "h1", "name": "shell"})
    log.add("user.tool_confirmation", {"tool_use_id": call, "result": "allow"})
    assert log.transcript.hand_of(log.transcript.calls[call]) is None
    log.provision("h2")
    hand = log.transcript.hand_of(log.transcript.calls[call])
    assert hand is not None
    assert hand.hand_id == "h2"


@pytest.mark.parametrize("role", ["brain/b1", "daemon/operator", "vault/v"])
def test_a_confirmation_that_no_operator_appended_is_no_persons_word(role: str) -> None:
    log = Log()
    use = {"name": "bash", "input": {}, "hand": "shell", "model_request_start_id": log.ask()}
    call_id = log.add("agent.tool_use", {**use, "evaluated_permission": "ask"})
    said = {"tool_use_id": call_id, "result": "allow"}
    log.add("user.tool_confirmation", said, source=f"spiffe://carpal.internal/{role}")
    call = log.transcript.calls[call_id]
    assert call.decision is None
    assert log.transcript.waits(call)
    assert [why for _, why in log.transcript.moot]
    log.add("user.tool_confirmation", said)
    assert call.decision is not None
