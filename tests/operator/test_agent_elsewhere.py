"""What an agent needs and nobody has now is said by its key, and by what there is."""

import pytest

from carpal.agent import Agent, Json, read_agent
from carpal.operator.agent_elsewhere import missing
from carpal.v1 import orchestrator_pb2


def agent(**said: Json | str) -> Agent:
    """An agent of a process hand that says this too."""
    return read_agent({"hands": {"shell": {"type": "process"}}, **said})


def told(state: str = "connected", **more: list[str]) -> orchestrator_pb2.ListDaemonsResponse:
    """One daemon that offers processes and browsers, and a brain with two providers."""
    box = orchestrator_pb2.DaemonInfo(daemon_id="box", state=state, types=["process", "browser"])
    more = {"providers": ["anthropic", "gateway"]} | more
    return orchestrator_pb2.ListDaemonsResponse(daemons=[box], **more)


def test_what_there_is_is_no_word_worth() -> None:
    assert missing(agent(provider="gateway"), told()) == []
    assert missing(agent(), told("draining")) == []


@pytest.mark.parametrize("state", ["gone", "quarantined"])
def test_a_type_that_no_linked_daemon_offers_is_named(state: str) -> None:
    phone = agent(hands={"phone": {"type": "android"}})
    (line,) = missing(phone, told())
    assert line == (
        "hands.phone.type: no daemon that is linked now offers 'android'; there is browser, process"
    )
    (line,) = missing(agent(), told(state))
    assert line.endswith("'process'; none is linked that offers any")


def test_a_provider_that_the_brain_does_not_have_is_named_also_the_fallbacks() -> None:
    lines = missing(agent(provider="x", fallback_model={"model": "m", "provider": "y"}), told())
    there = "it has anthropic, gateway"
    assert lines == [
        f"provider: the brain that was asked has no provider 'x'; {there}",
        f"fallback_model.provider: the brain that was asked has no provider 'y'; {there}",
    ]


def test_an_older_brain_that_tells_no_providers_is_asked_nothing() -> None:
    assert missing(agent(provider="x"), told(providers=[])) == []
