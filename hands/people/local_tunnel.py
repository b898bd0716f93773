"""A person in a hand over the local socket: the RPC Tunnel in the place of a link's stream."""

from collections.abc import AsyncIterator
from typing import Any, cast

import grpc

from carpal.errors import invalid
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.attach import AttachStream
from hands.owner.gate import Gate
from hands.people import tunnel_stream
from hands.people.tunnels import Tunnels

_Context = grpc.aio.ServicerContext[hand_pb2.TunnelRequest, hand_pb2.TunnelResponse]


async def serve(
    requests: AsyncIterator[hand_pb2.TunnelRequest],
    context: Any,
    tunnels: Tunnels,
    gate: Gate,
) -> None:
    """Let a person in, and carry what they send and get to its end. Refuses as `opened` does."""
    first = await anext(requests, None)
    if first is None or not first.HasField("open"):
        raise invalid("open", "must come first")
    stream = cast(AttachStream, _Local(first, requests, context))
    with tunnels.opened(first.open) as tunnel:
        await tunnel_stream.carry(lambda: stream, pb.AttachOpen(), tunnel, gate)


class _Local:
    """What a link's stream does, over one RPC whose messages are the tunnel's own."""

    def __init__(
        self,
        first: hand_pb2.TunnelRequest,
        requests: AsyncIterator[hand_pb2.TunnelRequest],
        context: _Context,
    ) -> None:
        self._first: hand_pb2.TunnelRequest | None = first
        self._requests = requests
        self._context = context

    async def read(self) -> object:
        """The first message stands for the brain's word that the log has it."""
        said, self._first = self._first, None
        if said is None:
            said = await anext(self._requests, None)
        return grpc.aio.EOF if said is None else pb.AttachResponse(tunnel=said)

    async def write(self, request: pb.AttachRequest) -> None:
        if request.HasField("tunnel"):  # the opening is the caller's own
            await self._context.write(request.tunnel)

    async def done_writing(self) -> None:
        """The RPC ends when its handler does."""

    def cancel(self) -> None:
        """As above."""
