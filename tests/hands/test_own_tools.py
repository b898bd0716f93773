"""Hands of one type that each have tools of their own: told once, pinned, and what calls fit."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.builtin.socket import SocketType
from hands.inside.schema import check
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from tests.hands.hand_server import SCHEMA, Replaying, echo, serving
from tests.hands.place import Place, open_place


class Listing(Replaying):
    """Its hands have the tools that their config names."""

    def __init__(self) -> None:
        super().__init__(echo)
        self.info.capabilities.append("lists_tools")
        del self.info.tools[:]
        self.info.config_schema = b'{"type": "object", "properties": {"tools": {"type": "array"}}}'

    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        self.hands[request.hand_id] = request
        named = json.loads(request.config)["tools"]
        tools = [pb.ToolInfo(name=each, description="Says.", input_schema=SCHEMA) for each in named]
        yield pb.ProvisionResponse(result=pb.ProvisionResult(note="there", tools=tools))


@asynccontextmanager
async def place(folder: Path, **more: Any) -> AsyncIterator[Place]:
    """A daemon's service that has such a type."""
    at = folder / "hand.sock"
    types = {"lists": SocketType("lists", at)}
    state = folder / "state"
    async with open_place(state, more=types, blobs=Blobs(0.0), end=False, **more) as one:
        yield one


def order(place: Place, *tools: str) -> pb.ProvisionRequest:
    config = json.dumps({"tools": tools}).encode()
    return pb.ProvisionRequest(
        driver=place.driver(), hand_id=place.new_id("h"), type="lists", config=config
    )


def names(result: pb.ProvisionResult) -> list[str]:
    return [tool.name for tool in result.tools]


async def test_two_hands_of_one_type_have_each_their_own_tools_and_run_no_others(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "hand.sock", Listing()), place(tmp_path) as here:
        (kind,) = [each for each in here.service.types() if each.type == "lists"]
        assert "lists_tools" in kind.capabilities
        assert not kind.tools
        first, second = order(here, "say", "shout"), order(here, "whisper")
        assert names(await here.provision(first)) == ["say", "shout"]
        assert names(await here.provision(second)) == ["whisper"]
        assert (await here.run(first.hand_id, "shout", text="hello")).content == "hello"
        with pytest.raises(CarpalError) as raised:
            await here.run(second.hand_id, "say", text="hello")
        assert raised.value.reason is Reason.TOOL_NOT_FOUND
        assert "it has whisper" in raised.value.message


async def test_a_hands_tools_stay_the_same_when_it_is_asked_for_again_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "hand.sock", Listing()):
        async with place(tmp_path) as here:
            request = order(here, "say")
            first = await here.provision(request)
        async with place(tmp_path) as here:
            assert await here.provision(request) == first
            assert (await here.run(request.hand_id, "say", text="again")).content == "again"
            with pytest.raises(CarpalError) as raised:
                await here.run(request.hand_id, "say", text=7)
            assert raised.value.reason is Reason.INPUT_INVALID


async def test_the_owner_has_the_last_word_also_about_tools_that_a_hand_lists(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('tools = ["lists/say"]\nredact = ["Says[.]"]')
    gate = Gate(PolicyFile(policy))
    async with serving(tmp_path / "hand.sock", Listing()), place(tmp_path, gate=gate) as here:
        request = order(here, "say", "shout")
        made = await here.provision(request)
        (tool,) = made.tools
        assert list(made.forbidden_tools) == ["shout"], "it is said that it is not offered"
        assert (tool.name, tool.description) == ("say", "[redacted]")
        with pytest.raises(CarpalError) as raised:
            await here.run(request.hand_id, "shout", text="hello")
        assert raised.value.reason is Reason.POLICY_FORBIDS


@pytest.mark.parametrize("tools", [("a b",), ("say", "say")])
async def test_tools_that_no_model_could_be_told_make_no_hand(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    server = Listing()
    async with serving(tmp_path / "hand.sock", server), place(tmp_path) as here:
        with pytest.raises(CarpalError) as raised:
            await here.provision(order(here, *tools))
        assert raised.value.reason is Reason.PROVISION_FAILED
        assert "tool" in raised.value.message
        assert not server.hands


OTHERS = [
    ({"type": ["string", "null"]}, None),
    ({"type": "null"}, None),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 7),
    ({"$ref": "#/$defs/other", "type": "string"}, 7),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [7]),
    ({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False}, {"xy": 1}),
    ({"type": "string", "pattern": "(a+)+$", "format": "uri"}, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaab"),
]
"""What schemas of others say in words that are not known here, and what fits them, or might."""


@pytest.mark.parametrize(("schema", "value"), OTHERS)
def test_what_a_schema_says_in_words_that_are_not_known_here_refuses_nothing(
    schema: dict[str, Any], value: Any
) -> None:
    assert check({"type": "object", "properties": {"a": schema}}, {"a": value}) is None


def test_what_it_says_in_words_that_are_known_is_held_to_beside_them() -> None:
    known: dict[str, Any] = {"a": {"type": "string", "minLength": 3}}
    problem = check({"properties": known, "patternProperties": {}}, {"a": "ab", "b": 1})
    assert problem is not None
    assert (problem.field, problem.text) == ("a", "is shorter than 3")
