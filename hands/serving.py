"""The daemon's hand service on a unix socket: no brain, no link, whoever opens it may ask.

For `carpal hand check --type`, which holds a hand type to the contract through
the very service that a brain speaks to over a link.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from carpal.process import until_stopped
from carpal.ready import announce
from carpal.server import Context, not_built, serve_locally
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import hand_pb2_grpc
from hands.contract import HandType
from hands.files import HandFiles, boot_id
from hands.folder_blobs import FolderBlobs
from hands.inventory import open_inventory
from hands.journal import Journal
from hands.journal_file import journal_errors
from hands.local import beside
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from hands.people import local_tunnel
from hands.service import HandService

_NAME = "check"
_HANDS_MAX = 256
_POLICY = 'people = ["shell", "copy", "forward", "view", "control"]\n'
"""Whoever opens the socket may do anything with its hands, and so enter them."""


class HandServicer(hand_pb2_grpc.HandServicer):
    """A `HandService` as a gRPC service."""

    def __init__(self, service: HandService) -> None:
        self.service = service

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        return await self.service.describe(request)

    async def Probe(self, request: pb.ProbeRequest, context: Context) -> pb.ProbeResponse:
        return await self.service.probe(request)

    async def Provision(
        self, request: pb.ProvisionRequest, context: Context
    ) -> AsyncIterator[pb.ProvisionResponse]:
        async for response in self.service.provision(request):
            yield response

    async def Claim(self, request: pb.ClaimRequest, context: Context) -> pb.ClaimResponse:
        return await self.service.claim(request)

    async def Execute(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        async for response in self.service.execute(request).watch(request.output_offset):
            yield response

    async def Acknowledge(
        self, request: pb.AcknowledgeRequest, context: Context
    ) -> pb.AcknowledgeResponse:
        return await self.service.acknowledge(request)

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        return await self.service.cancel(request)

    async def Transfer(self, request: pb.TransferRequest, context: Context) -> pb.TransferResponse:
        return await self.service.transfer(request)

    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        return await self.service.release(request)

    async def Events(
        self, request: pb.EventsRequest, context: Context
    ) -> AsyncIterator[pb.EventsResponse]:
        async for response in self.service.events(request):
            yield response

    async def Tunnel(  # type: ignore[override]  # gRPC takes what writes for itself too
        self, request_iterator: Any, context: Any
    ) -> None:
        await local_tunnel.serve(
            aiter(request_iterator), context, self.service.tunnels, self.service.gate
        )

    ResetUnit = not_built  # the daemon resets by itself

    async def Save(
        self, request: pb.SaveRequest, context: Context
    ) -> AsyncIterator[pb.SaveResponse]:
        async for response in self.service.save(request):
            yield response

    async def ListHands(
        self, request: pb.ListHandsRequest, context: Context
    ) -> pb.ListHandsResponse:
        return await self.service.list_hands(request)


async def run(
    types: Mapping[str, HandType],
    stop: asyncio.Event,
    *,
    state: Path,
    socket: Path,
    workspace: str,
    daemon: Path,
    ready_fd: int | None = None,
) -> None:
    """Serve these types' hands on `socket` until `stop` is set; hands go on after it.

    `daemon` is the state folder of this machine's daemon: a type whose units that one gives out is
    refused.
    """
    files = HandFiles(state)
    _forget(socket)
    with (
        files.only_process(),
        journal_errors(files.journal),
        closing(Journal(files.journal, _NAME)) as journal,
    ):
        async with open_inventory(
            journal=journal,
            types=types,
            folder=files.hands,
            boot_id=boot_id(),
            hands_max=_HANDS_MAX,
            blobs=FolderBlobs(state / "blobs"),  # no brain will ever link here
            gate=Gate(PolicyFile(_policy(state))),
        ) as inventory:
            for name, kind in types.items():
                await asyncio.to_thread(beside.check, daemon, name, kind)
            servicer = HandServicer(HandService(inventory, _NAME, workspace))
            async with serve_locally(
                socket, lambda server: hand_pb2_grpc.add_HandServicer_to_server(servicer, server)
            ):
                announce(ready_fd, pid=os.getpid())
                await until_stopped(stop)


def _policy(state: Path) -> Path:
    state.mkdir(parents=True, exist_ok=True)
    written = state / "check-policy.toml"
    written.write_text(_POLICY, encoding="utf-8")
    return written


def _forget(socket: Path) -> None:
    socket.unlink(missing_ok=True)  # of a server that was killed
