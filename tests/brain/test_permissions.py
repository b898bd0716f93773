"""Which calls wait for a person follows from the agent; the first word that counts decides."""

from dataclasses import dataclass
from typing import Any

import pytest

from brain.permissions import (
    Decision,
    Permission,
    denial,
    evaluate,
    moot,
    read_decision,
    undecided,
)

CAREFUL = {
    "permissions": {
        "default": "always_allow",
        "tools": {"bash": "always_ask", "web__*": "always_ask", "web__read": "always_allow"},
    }
}


@dataclass
class Call:
    permission: Permission = "ask"
    decision: Decision | None = None
    result: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("name", "permission"),
    [
        ("read", "allow"),
        ("bash", "ask"),
        ("web__click", "ask"),
        ("web__read", "allow"),
        ("Bash", "allow"),
    ],
)
def test_a_tools_own_name_beats_a_pattern_and_a_pattern_the_default(
    name: str, permission: str
) -> None:
    assert evaluate(CAREFUL, name) == permission


def test_the_first_pattern_that_fits_counts() -> None:
    tools = {"b*": "always_ask", "ba*": "always_allow"}
    assert evaluate({"permissions": {"tools": tools}}, "bash") == "ask"


def test_an_agent_that_says_nothing_asks_nobody_and_one_that_asks_by_default_asks() -> None:
    assert evaluate({}, "bash") == "allow"
    assert evaluate({"permissions": None}, "bash") == "allow"
    assert evaluate({"permissions": {"default": "always_ask"}}, "bash") == "ask"


def test_the_brains_own_tools_need_nobody_and_what_is_not_offered_never_runs() -> None:
    agent = {"permissions": {"default": "always_ask"}, "tools": {"offer": ["read", "web__*"]}}
    assert evaluate(agent, "read_log", "brain") == "allow"
    assert evaluate(agent, "read") == "ask"
    assert evaluate(agent, "bash") == "deny"
    assert denial(Call("deny")) == "this agent may not use the tool"


def test_the_first_confirmation_decides_and_a_later_one_is_moot() -> None:
    call = Call()
    assert undecided(call)
    assert moot(call, stopped=False) == ""
    call.decision = read_decision({"result": "deny", "deny_message": "use staging"}, 7)
    assert not undecided(call)
    assert denial(call) == "a person did not allow this call: use staging"
    assert moot(call, stopped=False) == "event 7 had denied the call before"


def test_what_is_allowed_runs_and_a_denial_without_a_word_says_so_too() -> None:
    assert denial(Call(decision=read_decision({"result": "allow"}, 1))) == ""
    assert denial(Call(decision=read_decision({"result": "deny"}, 1)))


def test_a_confirmation_of_what_needs_none_says_why_it_decides_nothing() -> None:
    assert "only a person's word counts" in moot(Call(), stopped=False, by_person=False)
    assert moot(None, stopped=False) == "no call of that id waits"
    assert moot(Call("allow"), stopped=False) == "the call needed nobody's word"
    assert moot(Call(), stopped=True) == "the call had been interrupted before"
    assert moot(Call(result={}), stopped=False) == "the call had its result before"


@pytest.mark.parametrize(
    "data", [{"result": "yes"}, {"result": True}, {"result": "deny", "deny_message": 7}]
)
def test_a_confirmation_that_is_none_is_malformed(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the"):
        read_decision(data, 1)
