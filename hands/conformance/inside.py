"""A person in a hand, as a check plays one: what they send, and what the hand gives them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from carpal.client import held
from carpal.ids import new_id
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Failed, must
from hands.conformance.bench import Bench
from hands.conformance.hand import HandAt
from hands.conformance.subject import WORKSPACE

_SECONDS = 20.0
"""For the hand to say that it is open, and for each message after that."""
_OPENED = "Send `opened` first, as soon as the person is in."
_END = "Send `end` last, once what the person started is over."
_MESSAGE = "Set one of `opened`, `data`, `error` and `end` in each message of Tunnel."

Call = grpc.aio.StreamStreamCall[pb.TunnelRequest, pb.TunnelResponse]


class Person:
    """One who is in."""

    def __init__(self, bench: Bench, call: Call) -> None:
        self.data = b""
        """All that came."""
        self.error = b""
        self._bench = bench
        self._call = call

    async def give(self, data: bytes) -> None:
        """Send it."""
        await self._call.write(pb.TunnelRequest(data=data))

    async def done(self) -> None:
        """Send no more."""
        await self._call.write(pb.TunnelRequest(end=pb.TunnelEnd()))

    async def sees(self, text: bytes) -> None:
        """Until `text` came; Failed when it ended before."""
        while text not in self.data:
            if (end := await self.more()) is not None:
                raise Failed(f"ended ({end.problem or 'well'}) without {text!r}")

    async def end(self) -> pb.TunnelEnd:
        """How it ended, with all that came until then."""
        while (end := await self.more()) is None:
            pass
        return end

    async def quiet(self, seconds: float) -> None:
        """Take what comes for so long; then nothing can be taken any more."""
        reading = asyncio.create_task(self._rest())
        await asyncio.wait({reading}, timeout=seconds)
        reading.cancel()
        await asyncio.wait({reading})

    async def _rest(self) -> None:
        while await self.more() is None:
            pass

    async def more(self) -> pb.TunnelEnd | None:
        """Take one message; how it ended, if that was it."""
        async with self._bench.waits.within(_SECONDS, "Tunnel sent no more", _END):
            said = await self._call.read()
        if not isinstance(said, pb.TunnelResponse):
            code = await self._call.code()
            raise Failed(f"Tunnel ended without `end`, with the status {code.name}", _END)
        kind = said.WhichOneof("message")
        must(kind in {"data", "error", "end"}, f"a message of Tunnel holds {kind}", _MESSAGE)
        if kind == "end":
            return said.end
        self.data += said.data
        self.error += said.error
        return None


@asynccontextmanager
async def entered(
    bench: Bench, hand: HandAt, kind: str, *, options: Mapping[str, Any], take: bool = False
) -> AsyncIterator[Person]:
    """Somebody in, once the hand says so; at the end of the block their stream is cut."""
    opening = pb.TunnelOpen(
        hand_id=hand.hand_id,
        operator="spiffe://check/operator/check",
        kind=kind,
        options=json.dumps(dict(options)).encode(),
        session_id=hand.driver.session_id,
        workspace=WORKSPACE,
        tunnel_id=new_id("tunl"),
        take=take,
        hand="hand",
    )
    with bench.waits.of("Tunnel"), held(bench.stub.Tunnel()) as call:
        await _write(call, opening)
        async with bench.waits.within(_SECONDS, "Tunnel did not say `opened`", _OPENED):
            first = await call.read()
        if not isinstance(first, pb.TunnelResponse):
            raise await refusal(call)
        must(first.HasField("opened"), "the first message of Tunnel is not `opened`", _OPENED)
        yield Person(bench, call)


async def _write(call: Call, opening: pb.TunnelOpen) -> None:
    try:
        await call.write(pb.TunnelRequest(open=opening))
    except (asyncio.InvalidStateError, grpc.RpcError):
        raise await refusal(call) from None


async def refusal(call: Call) -> Exception:
    """What a stream ended with that said nothing."""
    code = await call.code()
    if code is grpc.StatusCode.OK:
        return Failed("Tunnel ended before it said `opened`", _OPENED)
    return grpc.aio.AioRpcError(
        code,
        await call.initial_metadata(),
        await call.trailing_metadata(),
        details=await call.details(),
    )
