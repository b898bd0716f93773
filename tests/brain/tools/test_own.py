"""The brain's own tools: who has them, and what they take."""

from typing import Any

import pytest

from brain.tools.offered import meant, offered
from brain.tools.own import Read, Search, ToolSearch, asked, reads_log
from carpal.errors import CarpalError
from carpal.status import Reason
from tests.brain.logs import AGENT, HANDS, LOG_TOOLS, Log

BASH = {"name": "bash", "description": "runs", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("agent", "reads"),
    [
        ({}, True),
        ({"context": None}, True),
        ({"context": {"policy": "whole"}}, False),
        ({"context": {"policy": "trim"}}, True),
        ({"context": {"policy": "trim"}, "tools": {"session_log": False}}, False),
        ({"tools": {"session_log": True}}, True),
        ({"tools": {"offer": ["bash"]}}, True),
    ],
)
def test_the_log_is_offered_where_the_policy_does_not_show_it_unless_the_agent_says(
    agent: dict[str, Any], reads: bool
) -> None:
    assert reads_log(agent) is reads
    log = Log()
    log.add("session.updated", {"agent": AGENT | agent})
    names = [tool["name"] for tool in offered(log.transcript)]
    assert names == (LOG_TOOLS if reads else [])


def test_the_brains_own_names_mean_its_own_tools_whatever_a_hand_says_it_has() -> None:
    log = Log()
    posing = BASH | {"name": "brain__session_read"}
    log.add("context.tools", {"hand": "shell", "type": "process", "tools": [BASH, posing]})
    told = offered(log.transcript)
    assert [tool["name"] for tool in told] == ["bash", *LOG_TOOLS]
    assert told[2]["description"] != BASH["description"]
    assert meant(log.transcript, "brain__session_read") == ("brain", "session_read")
    assert meant(log.transcript, "brain__other") == ("brain", "other")


def test_a_hand_named_brain_offers_nothing() -> None:
    log = Log()
    log.add("session.updated", {"hands": HANDS | {"brain": {"type": "process"}}})
    log.add("context.tools", {"hand": "brain", "type": "process", "tools": [BASH]})
    assert [tool["name"] for tool in offered(log.transcript)] == LOG_TOOLS


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (Read, {"around": 0, "after": 0}, "give one"),
        (Read, {"around": 3, "offset": 9}, "offset goes with around and count 1"),
        (Read, {"around": -1}, "around: must be"),
        (Read, {"around": "3"}, "around: must be"),
        (Read, {"count": 101}, "count: must be"),
        (Read, {"session_id": "sesn_other"}, "session_id: is no key; there is around"),
        (Search, {"session": "sesn_other"}, "session: is no key; there is words"),
        (Search, {"words": 7}, "words: must be text"),
        (Search, {"limit": 0}, "limit: must be"),
        (Search, ["x"], "input: must be an object"),
        (ToolSearch, {"names": "bash"}, "names: must be a list"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_the_name_of_its_field(
    kind: Any, given: Any, words: str
) -> None:
    with pytest.raises(CarpalError, match=words) as caught:
        asked(given, kind)
    assert caught.value.reason is Reason.INPUT_INVALID
