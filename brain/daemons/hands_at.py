"""Asking a daemon's hands, wherever its link is: here, or at another brain.

`HandConnection.call` is the one way a runner speaks to a hand. Arms are
those of `Request` in orchestrator.proto; the relay serves the same ones as
the Hand service.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from brain.daemons.daemon_link import DaemonLink
from carpal.client import dial, held, rpc_errors
from carpal.errors import refuse
from carpal.identity import Role
from carpal.link_terms import UNARY
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import hand_pb2_grpc, orchestrator_pb2, orchestrator_pb2_grpc

DAEMON_KEY = "carpal-daemon"
"""Request metadata that names the daemon of a relayed call."""

ANSWER_LIMIT = 20.0
"""Seconds a daemon has for what is not a stream."""


class HandConnection(Protocol):
    """One daemon's hands."""

    def call(self, arm: str, request: Message) -> AsyncGenerator[Any, None]:
        """Ask; yields the answer's messages. Raises refusals and DAEMON_NOT_LINKED."""


class Linked:
    """The daemon's link is at this brain."""

    def __init__(self, link: DaemonLink, principal: str) -> None:
        """`principal` is the brain that asks, for the daemon's audit."""
        self._link = link
        self._principal = principal

    async def call(self, arm: str, request: Message) -> AsyncGenerator[Any, None]:
        """See HandConnection."""
        wrapped = orchestrator_pb2.Request(principal=self._principal)
        getattr(wrapped, arm).CopyFrom(request)
        async with aclosing(self._link.call(wrapped)) as replies:
            async for reply in replies:
                yield getattr(reply, arm)


class Relayed:
    """The daemon's link is at another brain: one hop."""

    def __init__(self, stub: "hand_pb2_grpc.HandAsyncStub", daemon_id: str, peer: str) -> None:
        self._stub = stub
        self._metadata = ((DAEMON_KEY, daemon_id),)
        self._peer = peer

    async def call(self, arm: str, request: Message) -> AsyncGenerator[Any, None]:
        """See HandConnection."""
        with rpc_errors(self._peer):
            method = getattr(self._stub, arm.title().replace("_", ""))
            if arm in UNARY:
                yield await method(request, metadata=self._metadata, timeout=ANSWER_LIMIT)
                return
            with held(method(request, metadata=self._metadata)) as stream:
                async for response in stream:
                    yield response


async def one(answer: AsyncGenerator[Any, None]) -> Any:
    """The single message of a unary answer, within `ANSWER_LIMIT`."""
    try:
        async with asyncio.timeout(ANSWER_LIMIT), aclosing(answer):
            async for message in answer:
                return message
    except TimeoutError:
        raise refuse(
            Reason.DAEMON_NOT_LINKED, f"the daemon did not answer in {ANSWER_LIMIT:g} s"
        ) from None
    raise refuse(Reason.LINK_VIOLATION, "the daemon's answer was empty")


class Peers:
    """Channels to other brains, dialled once an address."""

    def __init__(self, files: IdentityFiles) -> None:
        self._files = files
        self._stack = AsyncExitStack()
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def hands(self, address: str) -> "hand_pb2_grpc.HandAsyncStub":
        """The relay of the brain at an address."""
        return hand_pb2_grpc.HandStub(await self._channel(address))

    async def orchestrator(self, address: str) -> "orchestrator_pb2_grpc.OrchestratorAsyncStub":
        """The orchestrator of the brain at an address."""
        return orchestrator_pb2_grpc.OrchestratorStub(await self._channel(address))

    async def close(self) -> None:
        """Close every channel."""
        await self._stack.aclose()

    async def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            channel = await self._stack.enter_async_context(
                dial(address, Role.BRAIN, self._files, retry=False)
            )
            self._channels[address] = channel
        return self._channels[address]
