"""Entering a hand: the way through a brain, and what goes each way on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from carpal.client import from_rpc, held
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.operator.connection import Found, connect
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

if TYPE_CHECKING:
    from carpal.v1.orchestrator_pb2_grpc import OrchestratorAsyncStub

    EnterStream = grpc.aio.StreamStreamCall[pb.EnterRequest, pb.EnterResponse]

_NO_BRAIN = "no brain runs, so no hand can be entered"


class Visit:
    """One tunnel, while it is open."""

    def __init__(self, stream: "EnterStream", opened: pb.EnterOpened, peer: str) -> None:
        self.opened = opened
        self.over = False
        """Nothing that is sent is taken any more."""
        self._stream = stream
        self._peer = peer
        self._writing = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        """Bytes for the hand. Waits while it takes no more."""
        await self._send(hand_pb2.TunnelRequest(data=data))

    async def resize(self, rows: int, columns: int) -> None:
        """The terminal has another size."""
        await self._send(
            hand_pb2.TunnelRequest(resize=hand_pb2.TunnelResize(rows=rows, columns=columns))
        )

    async def end(self) -> None:
        """No more bytes this way."""
        await self._send(hand_pb2.TunnelRequest(end=hand_pb2.TunnelEnd()))

    async def came(self) -> AsyncIterator[hand_pb2.TunnelResponse]:
        """What the hand gives; the last is its end. Raises what cut it."""
        while True:
            said = await _read(self._stream, self._peer)
            if said is None:
                raise refuse(Reason.UNREACHABLE, f"{self._peer} ended the tunnel", action="again")
            yield said.tunnel
            if said.tunnel.HasField("end"):
                return

    async def _send(self, request: hand_pb2.TunnelRequest) -> None:
        async with self._writing:
            try:
                await self._stream.write(pb.EnterRequest(tunnel=request))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                self.over = True  # who reads learns why


@dataclass
class Way:
    """A brain that lets the person in."""

    stub: "OrchestratorAsyncStub"
    peer: str

    @asynccontextmanager
    async def enter(self, opening: pb.EnterOpen) -> AsyncIterator[Visit]:
        """One tunnel; the person is out at the end of the block. Raises the refusal."""
        with held(self.stub.Enter()) as stream:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the read says why
                await stream.write(pb.EnterRequest(open=opening))
            said = await _read(stream, self.peer)
            if said is None or not said.HasField("opened"):
                raise refuse(Reason.LINK_VIOLATION, f"{self.peer} did not say that it is open")
            yield Visit(stream, said.opened, self.peer)


@asynccontextmanager
async def entered(found: Found, opening: pb.EnterOpen) -> AsyncIterator[tuple[Way, Visit]]:
    """A tunnel by the first brain that lets the person in, and the way for more.

    Raises the refusal, or what kept the last brain from it.
    """
    failure: CarpalError = refuse(
        Reason.UNREACHABLE, _NO_BRAIN, action="start one with `carpal brain run`"
    )
    open_now = False
    async with connect(found) as operator:
        for lease in await operator.brains():
            try:
                async with operator.brain(lease.address) as stub:
                    way = Way(stub, f"{lease.resource} at {lease.address}")
                    async with way.enter(opening) as visit:
                        open_now = True
                        yield way, visit
                        return
            except Unreachable as error:
                if open_now:
                    raise
                failure = error  # it died a moment ago; another may serve
        raise failure


async def _read(stream: "EnterStream", peer: str) -> pb.EnterResponse | None:
    try:
        said = await stream.read()
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error, peer) from None
    return said if isinstance(said, pb.EnterResponse) else None
