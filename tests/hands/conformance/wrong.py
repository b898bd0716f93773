"""Hand servers that break one sentence of the contract each, in front of a service that does not.

They mix: a class that inherits from several breaks what each of them breaks.
"""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.ids import new_id
from carpal.server import Context, serve_locally
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import hand_pb2_grpc
from hands.conformance.subject import Subject, subject_at
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from hands.service import HandService
from hands.serving import HandServicer
from tests.hands.place import open_place

WORKSPACE = "check"


class RunsAgain(HandServicer):
    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> AsyncIterator[Any]:
        request.call_id = new_id("call")
        async for response in super().Execute(request, context):
            yield response


class StartsOver(HandServicer):
    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> AsyncIterator[Any]:
        request.output_offset = 0
        async for response in super().Execute(request, context):
            yield response


class CountsNoJobs(HandServicer):
    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> AsyncIterator[Any]:
        async for response in super().Execute(request, context):
            if response.HasField("result"):
                response.result.background = 0
            yield response


class LosesTheResult(HandServicer):
    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> AsyncIterator[Any]:
        async for response in super().Execute(request, context):
            if response.HasField("output"):
                yield response


class NamesNoField(HandServicer):
    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> AsyncIterator[Any]:
        try:
            async for response in super().Execute(request, context):
                yield response
        except CarpalError as error:
            error.fields.pop("field", None)
            raise


class ForgetsTombstones(HandServicer):
    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        if request.call_id.startswith("call_"):
            claim = pb.ClaimRequest(driver=request.driver, hand_id=request.hand_id)
            claim.call_ids.append(request.call_id)
            (found,) = (await self.service.claim(claim)).calls
            if found.state == pb.CALL_STATE_UNKNOWN:
                return pb.CancelResponse(state=pb.CALL_STATE_TOMBSTONE)
        return await super().Cancel(request, context)


class KillsNothing(HandServicer):
    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        return pb.CancelResponse(state=pb.CALL_STATE_RUNNING)


class LetsTheFencedIn(HandServicer):
    async def Claim(self, request: pb.ClaimRequest, context: Context) -> pb.ClaimResponse:
        request.driver.epoch = 1
        return await super().Claim(request, context)


class IgnoresLimits(HandServicer):
    async def Provision(
        self, request: pb.ProvisionRequest, context: Context
    ) -> AsyncIterator[pb.ProvisionResponse]:
        request.ClearField("limits")
        async for response in super().Provision(request, context):
            yield response


class ReleasesOnce(HandServicer):
    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        listed = await self.service.list_hands(pb.ListHandsRequest())
        if request.hand_id not in {hand.hand_id for hand in listed.hands}:
            return pb.ReleaseResponse(ended=False)
        return await super().Release(request, context)


class IsNotReady(HandServicer):
    async def Probe(self, request: pb.ProbeRequest, context: Context) -> pb.ProbeResponse:
        return pb.ProbeResponse(state=pb.PROBE_STATE_BROKEN, reason="the engine is away")


class KeepsAHand(HandServicer):
    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        raise refuse(Reason.INTERNAL, "it cannot be ended")


class AddsAField(HandServicer):
    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        described = await super().Describe(request, context)
        for tool in described.types[0].tools:
            if tool.name == "bash":
                schema = tool.input_schema.replace(
                    b'"properties": {', b'"properties": {"cwd": {"type": "string"}, '
                )
                tool.input_schema = schema
        return described


class ClaimsTooMuch(HandServicer):
    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        described = await super().Describe(request, context)
        described.types[0].capabilities.extend(["visual"])
        return described


class Shows(HandServicer):
    """Nothing is wrong with it: it is visual too."""

    picture = b"a picture"

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        described = await super().Describe(request, context)
        schema = b'{"type": "object", "properties": {}, "additionalProperties": false}'
        tool = pb.ToolInfo(name="screenshot", description="shows", input_schema=schema)
        described.types[0].tools.append(tool)
        described.types[0].capabilities.append("visual")
        return described

    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> AsyncIterator[Any]:
        if request.name == "screenshot":
            yield pb.ExecuteResponse(result=self.shown())
            return
        async for response in super().Execute(request, context):
            yield response

    def shown(self) -> pb.Result:
        """A screenshot."""
        image = pb.Attachment(
            digest=hashlib.sha256(self.picture).digest(),
            media_type="image/png",
            size=len(self.picture),
            name="screenshot.png",
            data=self.picture,
        )
        text = "[image/png, 9 bytes: attached]"
        return pb.Result(outcome=pb.OUTCOME_OK, content=text, attachments=[image])


class ShowsNothing(Shows):
    def shown(self) -> pb.Result:
        result = super().shown()
        result.ClearField("attachments")
        return result


class ShowsAnother(Shows):
    def shown(self) -> pb.Result:
        result = super().shown()
        result.attachments[0].digest = bytes(32)
        return result


class ShowsWithoutAWord(Shows):
    def shown(self) -> pb.Result:
        result = super().shown()
        result.content = ""
        return result


class ClaimsToIsolate(HandServicer):
    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        described = await super().Describe(request, context)
        described.types[0].capabilities.extend(["isolated"])
        return described


@asynccontextmanager
async def serving(kind: type[HandServicer], state: Path) -> AsyncIterator[Path]:
    """The socket of such a server, over real process hands."""
    # Short: a socket's address holds 107 bytes, and the folders of tests are deep.
    with tempfile.TemporaryDirectory(prefix="carpal-") as folder:
        socket = Path(folder) / "socket"
        policy = Path(folder) / "policy.toml"
        policy.write_text('people = ["shell", "copy", "forward", "control"]\n')
        async with open_place(state, gate=Gate(PolicyFile(policy))) as place:
            servicer = kind(HandService(place.inventory, "d", WORKSPACE))
            async with serve_locally(
                socket, lambda server: hand_pb2_grpc.add_HandServicer_to_server(servicer, server)
            ):
                yield socket


@asynccontextmanager
async def subject(kind: type[HandServicer], state: Path) -> AsyncIterator[Subject]:
    """Such a server as the checks see it."""
    async with serving(kind, state) as socket:
        yield await subject_at(socket, None, {})
