"""Steering: what a person says while a turn runs reaches the model at its next request.

It stands after the results that came meanwhile, and the turn goes on: nothing it did is lost,
and the session is not idle in between.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import types_pb2
from tests.interaction.play import HELD, Session, let_go, pipes, session, started
from tests.practice import requests_of
from tests.world import World, world

LEFT = "now go left"
WAITED = 30.0
"""Seconds that the script's overloaded model asks to wait."""


@pytest.fixture(scope="module")
async def steered(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world whose practice model plays the script beside this file."""
    script = Path(__file__).with_name("steering.yaml")
    state = tmp_path_factory.mktemp("steered") / "state"
    async with world(state, scripts=(script,)) as running:
        yield running


async def bodies(it: World) -> list[dict[str, Any]]:
    """What the model was asked, oldest first."""
    return [each["body"] for each in await requests_of(it.running["practice"].facts["url"])]


async def asked_last(it: World, made: Session) -> list[dict[str, Any]]:
    """The messages of the session's newest request, once the turn is over."""
    await over(made)
    first = made.data("user.message")[0]["content"]
    mine = [
        b["messages"]
        for b in await bodies(it)
        if b["messages"][0]["content"][0]["text"] == first[0]["text"]
    ]
    return mine[-1]  # type: ignore[no-any-return]


async def over(made: Session) -> types_pb2.Event:
    """The turn's one end."""
    idle = await made.until_type("session.status_idle")
    kinds = [e.type for e in made.log if e.position <= idle.position]
    assert kinds.count("session.status_running") == 1, made.text()
    return idle


def kinds_of(message: dict[str, Any]) -> list[str]:
    """The types of a message's blocks."""
    return [block["type"] for block in message["content"]]


def texts(message: dict[str, Any]) -> list[str]:
    """What a person says in a message."""
    return [block["text"] for block in message["content"] if block["type"] == "text"]


async def test_what_is_said_while_a_call_runs_comes_with_the_calls_result(
    steered: World, tmp_path: Path
) -> None:
    work = pipes(tmp_path / "work")
    async with session(steered, HELD, work) as made:
        await started(work)
        said = await made.say("$ echo steered")
        await let_go(work)
        await made.until(lambda e: e.type == "agent.tool_use" and e.position > said.position)
        idle = await over(made)
        steps = [e.type for e in made.log if said.position <= e.position < idle.position]
        assert steps[:3] == ["user.message", "agent.tool_result", "span.model_request_start"]
        assert made.results()[1] == "steered\n"
        last = (await asked_last(steered, made))[2]
        assert (last["role"], kinds_of(last)) == ("user", ["tool_result", "text"])
        assert texts(last) == ["$ echo steered"]
    assert "effect" in (work / "effects").read_text()


async def test_what_is_said_while_the_model_streams_a_call_comes_with_its_result(
    steered: World,
) -> None:
    async with session(steered, "[steer] stream a call") as made:
        await made.until_type("span.model_request_start")
        said = await made.say(LEFT)
        (reply,) = [await made.until_type("agent.tool_use")]
        assert reply.position > said.position, "it was said while the model wrote"
        messages = await asked_last(steered, made)
        assert [m["role"] for m in messages] == ["user", "assistant", "user"]
        assert kinds_of(messages[2]) == ["tool_result", "text"]
        assert texts(messages[2]) == [LEFT]
        assert made.results() == ["called\n"]
        assert made.data("agent.message")[-1]["content"][0]["text"] == "I go left."


async def test_what_is_said_while_the_model_ends_its_turn_is_answered_in_the_same_drive(
    steered: World,
) -> None:
    async with session(steered, "[steer] stream only text") as made:
        await made.until_type("span.model_request_start")
        said = await made.say(LEFT)
        reply = await made.until_type("agent.message")
        assert reply.position > said.position, "it was said while the model wrote"
        messages = await asked_last(steered, made)
        assert [m["role"] for m in messages] == ["user", "assistant", "user"]
        assert texts(messages[2]) == [LEFT]
        assert len(made.data("span.model_request_start")) == 2


async def test_what_is_said_during_parallel_calls_comes_after_all_their_results(
    steered: World, tmp_path: Path
) -> None:
    work = pipes(tmp_path / "work")
    hands = ("shell", "slow")
    async with session(steered, "[steer] call side by side", work, hands) as made:
        await started(work)
        await made.until_type("agent.tool_result")
        await made.say(LEFT)
        await let_go(work)
        messages = await asked_last(steered, made)
        assert kinds_of(messages[2]) == ["tool_result", "tool_result", "text"]
        assert texts(messages[2]) == [LEFT]
        assert sorted(made.results()) == ["held\n", "quick\n"]


async def test_what_is_said_during_the_wait_for_a_retry_cuts_it_short(steered: World) -> None:
    async with session(steered, "[steer] be overloaded") as made:
        error = await made.until_type("session.error")
        assert json.loads(error.data)["error"]["retry_status"]["type"] == "retrying"
        said = await made.say(LEFT)
        again = await made.until_type("span.model_request_start", after=said.position)
        waited = again.time.ToMilliseconds() - error.time.ToMilliseconds()
        assert waited < WAITED * 1000, "it waited as long as the service asked"
        messages = await asked_last(steered, made)
        assert texts(messages[0]) == ["[steer] be overloaded", LEFT]
        assert made.data("session.status_idle")[-1]["stop_reason"]["type"] == "end_turn"
