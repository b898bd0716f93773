"""What waits for a person follows from the events of the newest turn."""

from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.operator.waiting import Calls
from carpal.status import Reason
from tests.operator.log import BRAIN, OPERATOR, Log

USE = {"name": "bash", "hand": "shell", "input": {"command": "make"}}


def folded(*events: tuple[str, dict[str, Any]]) -> Calls:
    log, calls = Log(), Calls()
    for kind, data in events:
        log.add(kind, data, source=OPERATOR if kind.startswith("user.") else BRAIN)
    for event in log.events:
        calls.take(event)
    return calls


def asks(permission: str = "ask") -> tuple[str, dict[str, Any]]:
    return "agent.tool_use", {**USE, "evaluated_permission": permission}


def test_a_call_that_asks_waits_until_it_is_decided_or_has_a_result() -> None:
    calls = folded(asks(), asks("allow"), asks("deny"), asks(), asks())
    assert [each.call_id for each in calls.waiting] == ["sevt_1", "sevt_4", "sevt_5"]
    calls = folded(
        asks(),
        asks(),
        ("user.tool_confirmation", {"tool_use_id": "sevt_1", "result": "allow"}),
        ("agent.tool_result", {"tool_use_id": "sevt_2"}),
    )
    assert not calls.waiting


def test_an_interrupt_leaves_nothing_waiting_and_a_malformed_word_decides_nothing() -> None:
    assert not folded(asks(), ("user.interrupt", {})).waiting
    odd = ("user.tool_confirmation", {"tool_use_id": "sevt_1", "result": "maybe"})
    assert folded(asks(), odd).waiting


def test_all_that_waits_is_meant_when_no_call_is_named() -> None:
    calls = folded(asks(), asks())
    assert len(calls.named((), "s")) == 2
    assert [each.call_id for each in calls.named(("sevt_2",), "s")] == ["sevt_2"]


@pytest.mark.parametrize(
    ("call", "reason", "says"),
    [
        ("nobody", Reason.CALL_NOT_FOUND, "no call 'nobody' waits for a person in s"),
        ("sevt_1", Reason.CALL_DECIDED, "the call 'sevt_1' was denied at position 4"),
        ("sevt_2", Reason.CALL_NOT_FOUND, "no call 'sevt_2' waits"),
        ("sevt_3", Reason.CALL_DECIDED, "the call 'sevt_3' was interrupted at position 5"),
    ],
)
def test_a_call_that_does_not_wait_is_refused_with_why(
    call: str, reason: Reason, says: str
) -> None:
    calls = folded(
        asks(),
        asks("allow"),
        asks(),
        ("user.tool_confirmation", {"tool_use_id": "sevt_1", "result": "deny"}),
        ("user.interrupt", {}),
    )
    with pytest.raises(CarpalError) as caught:
        calls.named((call,), "s")
    assert (caught.value.reason, says in str(caught.value)) == (reason, True)
    with pytest.raises(CarpalError, match="no call waits for a person in s"):
        calls.named((), "s")


def test_a_person_sees_the_whole_input_and_nothing_that_moves_the_cursor() -> None:
    use = {**USE, "input": {"command": "x\u001b[2Jy", "timeout": 5}, "evaluated_permission": "ask"}
    (asked,) = folded(("agent.tool_use", use)).waiting
    assert asked.text() == r'shell: bash {"command": "x\u001b[2Jy", "timeout": 5}'


def test_a_word_that_a_brain_appended_leaves_the_call_waiting() -> None:
    log, calls = Log(), Calls()
    log.add(*asks())
    log.add("user.tool_confirmation", {"tool_use_id": "sevt_1", "result": "allow"}, source=BRAIN)
    for event in log.events:
        calls.take(event)
    assert [each.call_id for each in calls.waiting] == ["sevt_1"]
