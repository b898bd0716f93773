"""A hand server of somebody's own, as simple as the contract allows, and as wrong as one likes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from carpal.loop_watch import the_one_loop
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import hand_pb2_grpc

SCHEMA = b'{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}'
Context = grpc.aio.ServicerContext[pb.ExecuteRequest, pb.ExecuteResponse]
Steps = Callable[[pb.ExecuteRequest, Context], AsyncIterator[pb.ExecuteResponse]]


def result(
    content: str = "done", outcome: "pb.Outcome.ValueType" = pb.OUTCOME_OK
) -> pb.ExecuteResponse:
    """An end of a call."""
    return pb.ExecuteResponse(result=pb.Result(outcome=outcome, content=content))


def output(offset: int, data: bytes) -> pb.ExecuteResponse:
    """Output of a call."""
    return pb.ExecuteResponse(output=pb.OutputChunk(offset=offset, data=data))


async def echo(request: pb.ExecuteRequest, context: Context) -> AsyncIterator[pb.ExecuteResponse]:
    """Says what it was told."""
    text = json.loads(request.input)["text"]
    yield output(0, text.encode())
    yield result(text)


async def _refuse(_: object, request: object, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this server has not that")


_unimplemented: Any = _refuse


class Least(hand_pb2_grpc.HandServicer):
    """The five RPCs that are enough; everything else is UNIMPLEMENTED."""

    Probe = Claim = Acknowledge = Transfer = Events = Tunnel = Save = ListHands = _unimplemented
    ResetUnit = _unimplemented

    def __init__(self, steps: Steps = echo) -> None:
        self.steps = steps
        self.info = pb.HandTypeInfo(
            type="echo",
            description="It echoes.",
            tools=[pb.ToolInfo(name="say", description="Says it.", input_schema=SCHEMA)],
        )
        self.hands: dict[str, pb.ProvisionRequest] = {}
        self.asked: list[pb.ExecuteRequest] = []
        self.cancelled: list[str] = []

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.DescribeResponse:
        return pb.DescribeResponse(types=[self.info])

    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        self.hands[request.hand_id] = request
        yield pb.ProvisionResponse(progress=pb.ProvisionProgress(message="making it"))
        yield pb.ProvisionResponse(result=pb.ProvisionResult(note="It is on a shelf."))

    async def Execute(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        await self._find(request, context)
        self.asked.append(request)
        async for step in self.steps(request, context):
            yield step

    async def _find(self, request: pb.ExecuteRequest, context: Context) -> None:
        if request.hand_id not in self.hands:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no hand {request.hand_id}")

    async def Cancel(self, request: pb.CancelRequest, context: object) -> pb.CancelResponse:
        self.cancelled.append(request.call_id)
        return pb.CancelResponse()

    async def Release(self, request: pb.ReleaseRequest, context: object) -> pb.ReleaseResponse:
        self.hands.pop(request.hand_id, None)
        return pb.ReleaseResponse(ended=True)


class Replaying(Least):
    """One that keeps its calls when who watched them leaves: the capability `replay`."""

    def __init__(self, steps: Steps = echo) -> None:
        super().__init__(steps)
        self.info.capabilities.append("replay")
        self.said: dict[str, list[pb.ExecuteResponse]] = {}
        self.acknowledged: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._change = asyncio.Condition()

    async def Execute(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        await self._find(request, context)
        if request.call_id not in self.tasks:
            self.asked.append(request)
            self.said[request.call_id] = []
            self.tasks[request.call_id] = asyncio.create_task(self._run(request, context))
        told, said = 0, self.said[request.call_id]
        while True:
            async with self._change:
                while len(said) == told:
                    await self._change.wait()
            for step in said[told:]:
                told += 1
                yield step
                if step.HasField("result"):
                    return

    async def _run(self, request: pb.ExecuteRequest, context: Context) -> None:
        async for step in self.steps(request, context):
            async with self._change:
                self.said[request.call_id].append(step)
                self._change.notify_all()

    async def Acknowledge(
        self, request: pb.AcknowledgeRequest, context: object
    ) -> pb.AcknowledgeResponse:
        self.acknowledged.extend(request.call_ids)
        return pb.AcknowledgeResponse()

    async def ListHands(
        self, request: pb.ListHandsRequest, context: object
    ) -> pb.ListHandsResponse:
        hands = {each: pb.HandInfo(hand_id=each) for each in self.hands}
        for call in self.asked:
            said, info = self.said[call.call_id], hands.get(call.hand_id)
            if info is None or call.call_id in self.acknowledged:
                continue
            over = bool(said) and said[-1].HasField("result")
            ids = info.unacknowledged_call_ids if over else info.open_call_ids
            ids.append(call.call_id)
        return pb.ListHandsResponse(hands=hands.values())


@asynccontextmanager
async def serving(path: Path, servicer: hand_pb2_grpc.HandServicer) -> AsyncIterator[None]:
    """It on a socket, in this process."""
    the_one_loop()
    server = grpc.aio.server()
    hand_pb2_grpc.add_HandServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0.05)
        await server.wait_for_termination()
        if isinstance(servicer, Replaying):
            for task in servicer.tasks.values():
                task.cancel()
        path.unlink(missing_ok=True)
