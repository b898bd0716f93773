"""The checks know what a hand lists of its own, and a server that lists wrongly is caught."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.conformance import given
from hands.conformance.changes import CHANGES
from hands.conformance.first import first
from hands.conformance.run import judge
from hands.conformance.subject import subject_at
from hands.conformance.suite import CHECKS
from tests.hands.hand_server import serving
from tests.hands.test_own_tools import Listing

CONFIG = {"tools": ["say"]}


class ListsNothing(Listing):
    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        request.config = json.dumps({"tools": []}).encode()
        async for step in super().Provision(request, context):
            yield step


class DescribesOne(Listing):
    def __init__(self) -> None:
        super().__init__()
        self.info.tools.add(name="say", description="Says it.", input_schema=b'{"type": "object"}')


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Listing, ""),
        (ListsNothing, "the result lists no tool"),
        (DescribesOne, "the tools that Describe lists: 1, not 0"),
    ],
)
async def test_a_hand_that_lists_no_tools_or_whose_type_has_some_is_caught(
    kind: type[Listing], said: str, tmp_path: Path
) -> None:
    (check,) = [one for one in CHECKS if one.name == "listed_by_the_hand"]
    async with serving(tmp_path / "hand.sock", kind()):
        subject = await first(await subject_at(tmp_path / "hand.sock", None, CONFIG), 1.0)
        verdict = await judge(check, subject, 1.0)
    assert verdict.verdict == ("fail" if said else "pass")
    assert said in verdict.detail
    assert verdict.change == (CHANGES[check.name] if said else "")


async def test_the_checks_of_tools_are_made_of_those_that_the_hand_lists(tmp_path: Path) -> None:
    (check,) = [one for one in CHECKS if one.name == "described_whole"]
    async with serving(tmp_path / "hand.sock", Listing()):
        subject = await first(await subject_at(tmp_path / "hand.sock", None, CONFIG), 1.0)
        assert [tool.name for tool in subject.type.tools] == ["say"]
        assert (await judge(check, subject, 1.0)).verdict == "pass"


async def test_a_call_to_check_with_is_no_mistake_where_the_hands_list_no_tools(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "hand.sock", ListsNothing()):
        described = await subject_at(
            tmp_path / "hand.sock", None, CONFIG, None, ("say", {"text": "a"})
        )
        given.check(described)
        given.check_calls(await first(described, 1.0))
