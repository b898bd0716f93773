"""The one-hop relay: other brains reach the daemons linked here.

It forwards only to links of this very brain, so a call never hops twice.
Every method does the same, so each is one line.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import DAEMON_KEY, one
from brain.daemons.people import People, first, passed
from carpal.errors import invalid
from carpal.link_terms import UNARY
from carpal.server import Context, caller, not_built
from carpal.v1 import hand_pb2, hand_pb2_grpc


def _relayed(arm: str) -> Any:
    async def one_answer(self: "HandRelay", request: Message, context: Context) -> Any:
        return await one(self.forward(arm, request, context))

    async def stream(self: "HandRelay", request: Message, context: Context) -> AsyncIterator[Any]:
        async with aclosing(self.forward(arm, request, context)) as responses:
            async for response in responses:
                yield response

    return one_answer if arm in UNARY else stream


class HandRelay(hand_pb2_grpc.HandServicer):
    """The Hand service, as a brain serves it to other brains."""

    Describe = _relayed("describe")
    Probe = _relayed("probe")
    Provision = _relayed("provision")
    Claim = _relayed("claim")
    Execute = _relayed("execute")
    Acknowledge = _relayed("acknowledge")
    Cancel = _relayed("cancel")
    Transfer = _relayed("transfer")
    Release = _relayed("release")
    Events = _relayed("events")
    Save = _relayed("save")
    ListHands = _relayed("list_hands")
    ResetUnit = not_built  # the daemon's own, of a server on its machine

    def __init__(self, fleet: Fleet, people: People) -> None:
        self._fleet = fleet
        self._people = people

    async def Tunnel(
        self, request_iterator: AsyncIterator[hand_pb2.TunnelRequest], context: Context
    ) -> AsyncIterator[hand_pb2.TunnelResponse]:
        """A person whom another brain let in."""
        opening = await first(request_iterator)
        daemon = daemon_of(context)
        async with (
            self._people.here(opening, daemon, caller(context).uri) as meeting,
            aclosing(passed(meeting, request_iterator)) as came,
        ):
            async for said in came:
                yield said

    def forward(self, arm: str, request: Message, context: Context) -> AsyncGenerator[Any, None]:
        """Ask the daemon the request's metadata names, on behalf of the caller."""
        return self._fleet.linked(daemon_of(context), caller(context).uri).call(arm, request)


def daemon_of(context: Context) -> str:
    """The daemon that a relayed call is for."""
    for key, value in context.invocation_metadata() or ():
        if key == DAEMON_KEY:
            return str(value)
    raise invalid(DAEMON_KEY, "the request metadata must name the daemon")
