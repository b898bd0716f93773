"""The one-hop relay: other brains reach the daemons linked here.

It forwards only to links of this very brain, so a call never hops twice.
Every method does the same, so each is one line.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from brain.fleet import Fleet
from brain.hands_at import DAEMON_KEY, one
from carpal.errors import invalid
from carpal.server import Context, caller, not_built
from carpal.v1 import hand_pb2_grpc


def _unary(arm: str) -> Any:
    async def relay(self: "HandRelay", request: Message, context: Context) -> Any:
        return await one(self.forward(arm, request, context))

    return relay


def _stream(arm: str) -> Any:
    async def relay(self: "HandRelay", request: Message, context: Context) -> AsyncIterator[Any]:
        async with aclosing(self.forward(arm, request, context)) as responses:
            async for response in responses:
                yield response

    return relay


class HandRelay(hand_pb2_grpc.HandServicer):
    """The Hand service, as a brain serves it to other brains."""

    Describe = _unary("describe")
    Probe = _unary("probe")
    Provision = _stream("provision")
    Claim = _unary("claim")
    Execute = _stream("execute")
    Acknowledge = _unary("acknowledge")
    Cancel = _unary("cancel")
    Transfer = _unary("transfer")
    Release = _unary("release")
    Events = _stream("events")
    Tunnel = not_built
    Save = _stream("save")
    ListHands = _unary("list_hands")

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def forward(self, arm: str, request: Message, context: Context) -> AsyncGenerator[Any, None]:
        """Ask the daemon the request's metadata names, on behalf of the caller."""
        for key, value in context.invocation_metadata() or ():
            if key == DAEMON_KEY:
                return self._fleet.linked(str(value), caller(context).uri).call(arm, request)
        raise invalid(DAEMON_KEY, "the request metadata must name the daemon")
