"""What the owner has struck out leaves the machine by no way, over real hands."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import from_status, invalid
from carpal.server import abort
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import orchestrator_pb2
from hands.builtin.socket import SocketType
from hands.link import dispatch
from tests.hands.hand_server import Least, serving
from tests.hands.owner.owner import KEY, Owner, Taken
from tests.hands.test_service import provision, refused


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


async def test_patterns_are_redacted_from_results_and_output_before_they_leave(
    owner: Owner,
) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    async with owner.place() as place:
        hand_id = await place.hand()
        steps = await place.steps(place.request(hand_id, command=f"echo a {KEY} b"))
        assert b"".join(each.output.data for each in steps) == b"a " + b"*" * 20 + b" b\n"
        assert steps[-1].result.content == "a [redacted] b\n"
        read = await place.run(hand_id, "write", file_path=f"{KEY}.txt", content=f"x{KEY}y")
        assert [each.path for each in read.files] == ["[redacted].txt"]
        read = await place.run(hand_id, "read", file_path=f"{KEY}.txt")
        assert KEY not in read.content
        assert "x[redacted]y" in read.content


async def test_a_secret_that_comes_in_pieces_is_masked_from_any_offset(owner: Owner) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    async with owner.place() as place:
        hand_id = await place.hand()
        pieces = "; ".join(f"printf {KEY[at : at + 3]}; sleep 0.01" for at in range(0, 20, 3))
        command = f"printf 'say '; {pieces}; printf ' end'"
        request = place.request(hand_id, command=command)
        steps = await place.steps(request)
        whole = b"say " + b"*" * 20 + b" end"
        assert b"".join(each.output.data for each in steps) == whole
        for offset in range(len(whole) + 1):
            request.output_offset = offset
            again = await place.steps(request)
            assert b"".join(each.output.data for each in again) == whole[offset:]


async def test_a_flood_of_secrets_is_masked_whole_also_what_comes_from_the_disk(
    owner: Owner,
) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    async with owner.place() as place:
        hand_id = await place.hand()
        command = f"for i in {{1..20000}}; do echo {KEY}$i; done"
        request = place.request(hand_id, command=command)
        steps = await place.steps(request)
        data = b"".join(each.output.data for each in steps)
        assert len(data) > 300_000
        assert b"AKIA" not in data
        assert "AKIA" not in steps[-1].result.content
        request.output_offset = 200_003
        again = b"".join(each.output.data for each in await place.steps(request))
        assert again == data[200_003:]


class Telling(Least):
    """A hand server that says a key wherever it may say anything."""

    async def ResetUnit(
        self, request: pb.ResetUnitRequest, context: object
    ) -> pb.ResetUnitResponse:
        return pb.ResetUnitResponse()

    async def Probe(self, request: pb.ProbeRequest, context: object) -> pb.ProbeResponse:
        return pb.ProbeResponse(state=pb.PROBE_STATE_BROKEN, reason=f"no {KEY}")

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.DescribeResponse:
        schema = json.dumps({"type": "object", "description": KEY}).encode()
        info = pb.HandTypeInfo(
            type="echo",
            description=f"It is {KEY}.",
            tools=[
                pb.ToolInfo(name=name, description=f"Says {KEY}.", input_schema=schema)
                for name in ("say", KEY)
            ],
            config_schema=schema,
            capabilities=["units", KEY],
            units=[
                pb.UnitInfo(unit_id="left", labels={KEY: f"at {KEY}"}),
                pb.UnitInfo(unit_id=KEY),
            ],
        )
        return pb.DescribeResponse(types=[info])

    async def Provision(
        self, request: pb.ProvisionRequest, context: Any
    ) -> AsyncIterator[pb.ProvisionResponse]:
        if request.hand_id == "bad":
            await abort(context, invalid(f"config.{KEY}", "is not known"))
        yield pb.ProvisionResponse(progress=pb.ProvisionProgress(message=KEY))
        told = pb.ProvisionResult(note=KEY, not_enforced=[f"{KEY} is open"])
        yield pb.ProvisionResponse(result=told)


async def test_no_word_of_a_hand_type_leaves_with_a_pattern_in_it(
    owner: Owner, tmp_path: Path
) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    at = tmp_path / "hand.sock"
    async with (
        serving(at, Telling()),
        owner.place(more={"echo": SocketType("echo", at)}) as place,
    ):
        health = await place.service.probe(pb.ProbeRequest(type="echo"))
        assert health.reason == "no [redacted]"
        unkept = pb.ProbeResponse(not_enforceable=[f"{KEY} is open"])
        assert list(owner.gate.outward.health(unkept).not_enforceable) == ["[redacted] is open"]
        types = (await place.service.describe(pb.DescribeRequest())).types
        assert KEY not in str(types)
        (kind,) = (each for each in types if each.type == "echo")
        assert kind.description == "It is [redacted]."
        assert [tool.name for tool in kind.tools] == ["say"]
        assert kind.tools[0].description == "Says [redacted]."
        assert json.loads(kind.tools[0].input_schema) == {"type": "object"}
        assert json.loads(kind.config_schema) == {"type": "object"}
        (unit,) = kind.units
        assert dict(unit.labels) == {"[redacted]": "at [redacted]"}
        assert not kind.forbidden_tools
        steps = [each async for each in place.service.provision(provision(place, "h", type="echo"))]
        assert KEY not in str(steps)
        assert list(steps[-1].result.not_enforced) == ["[redacted] is open"]
        asked = orchestrator_pb2.Request(provision=provision(place, "bad", type="echo"))
        replies = [each async for each in dispatch.answer(place.service, asked)]
        assert from_status(replies[-1].status).reason is Reason.INVALID_FIELD
        assert KEY.encode() not in b"".join(each.SerializeToString() for each in replies)


async def test_a_pattern_that_came_later_holds_for_what_has_not_left(owner: Owner) -> None:
    async with owner.place() as place:
        hand_id = await place.hand()
        request = place.request(hand_id, command=f"echo {KEY}")
        assert (await place.steps(request))[-1].result.content == f"{KEY}\n"
        owner.says("redact = ['AKIA[A-Z0-9]{16}']")
        assert (await place.steps(request))[-1].result.content == "[redacted]\n"


async def test_a_file_in_which_a_pattern_is_found_stays_on_the_machine(owner: Owner) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    blobs = Taken()
    async with owner.place(blobs=blobs) as place:
        hand_id = await place.hand(keep_files=True)
        result = await place.sh(hand_id, f"echo {KEY} > secret; echo fine > plain")
        assert {each.path: each.kept for each in result.files} == {"secret": False, "plain": True}
        assert blobs.sent == [b"fine\n"]
        save = pb.SaveRequest(driver=place.driver(), hand_id=hand_id, save_id="s1")
        error = await refused(place.service.save(save))
        assert error.reason is Reason.POLICY_FORBIDS
        assert error.fields["rule"] == "redact"
        await place.sh(hand_id, "rm secret")
        save.save_id = "s2"
        assert [step async for step in place.service.save(save)][-1].saved.size
        assert len(blobs.sent) == 2
