"""Streams that carry nothing: a dead path ends them at both ends, and no ping is abuse."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from carpal.client import KEEPALIVE, dial, open_channel
from carpal.identity import Role, server_name
from carpal.server import Context, not_built, serve
from carpal.tls import IdentityFiles, channel_credentials, server_credentials
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc
from tests.fault_proxy import fault_proxy
from tests.pace import AT_ONCE, SCALE
from tests.pki import Pki

WAIT = 10.0 * SCALE
NOTICED = 45.0
"""Seconds in which either end must have noticed: 30 of silence, and 10 for the ping's answer."""

BETWEEN_SERVERS = 7.0 + AT_ONCE
"""The same between servers: 2 of silence, 5 for the answer, and some to be told."""


class Silent(orchestrator_pb2_grpc.OrchestratorServicer):
    """A stream that says one word and then nothing."""

    Connect = Attach = Enter = DrainDaemon = GetDaemon = QuarantineDaemon = not_built
    ReadBlob = WriteBlob = ListHands = ListDaemons = Wake = not_built

    def __init__(self) -> None:
        self.ended: asyncio.Queue[float] = asyncio.Queue()

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """Until the caller is gone."""
        try:
            yield pb.WatchResponse()
            await asyncio.Event().wait()
        finally:
            self.ended.put_nowait(time.monotonic())


@asynccontextmanager
async def silent(pki: Pki) -> AsyncIterator[tuple[Silent, str]]:
    """A server of that stream."""
    service = Silent()
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))

    def register(server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(service, server)

    async with serve("127.0.0.1:0", credentials, register) as serving:
        yield service, serving.address


async def watch(channel: grpc.aio.Channel) -> Any:
    """The stream, after its one word."""
    stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
    stream = stub.Watch(pb.WatchRequest(session_id="s"))
    async with asyncio.timeout(WAIT):
        await stream.read()
    return stream


async def over(stream: Any, seconds: float) -> float:
    """When the stream broke, which must be by then."""
    async with asyncio.timeout(seconds):
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
    return time.monotonic()


def pinging(address: str, files: IdentityFiles, every: float) -> grpc.aio.Channel:
    """A channel that pings more often than ours do."""
    options: list[tuple[str, object]] = [
        *KEEPALIVE,
        ("grpc.keepalive_time_ms", int(every * 1000)),
        ("grpc.ssl_target_name_override", server_name(Role.BRAIN, "carpal.internal")),
    ]
    return open_channel(address, channel_credentials(files), options, None)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_an_idle_stream_on_a_dead_path_ends_at_both_ends_and_pings_never_do_l01_l02(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path)
    ada = pki.issue(Role.OPERATOR, "ada")
    async with (
        silent(pki) as (service, address),
        fault_proxy(address) as path,
        dial(path.address, Role.BRAIN, ada) as cut,
        dial(address, Role.BRAIN, ada) as whole,
        pinging(address, ada, 10.0) as often,
    ):
        lost = await watch(cut)
        kept = [await watch(channel) for channel in (whole, often)]
        began = time.monotonic()
        path.blackhole()
        told = await over(lost, NOTICED + WAIT)
        async with asyncio.timeout(NOTICED + WAIT):
            ended = await service.ended.get()
        assert told - began < NOTICED * SCALE
        assert ended - began < NOTICED * SCALE
        # A server with gRPC's defaults answers "too many pings" after 40 s of these.
        await asyncio.sleep(max(0.0, began + 42.0 - time.monotonic()))
        assert [stream.done() for stream in kept] == [False, False]
        assert service.ended.empty()
        for stream in kept:
            stream.cancel()


@pytest.mark.slow
async def test_between_servers_a_dead_path_ends_a_silent_stream_within_a_lease(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path)
    async with (
        silent(pki) as (_, address),
        fault_proxy(address) as path,
        dial(path.address, Role.BRAIN, pki.issue(Role.BRAIN, "b2")) as channel,
    ):
        stream = await watch(channel)
        path.blackhole()
        await over(stream, BETWEEN_SERVERS)


@pytest.mark.slow
async def test_between_servers_a_connection_that_is_half_open_is_given_up_before_it_is_needed(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path)
    async with (
        silent(pki) as (_, address),
        fault_proxy(address) as path,
        dial(path.address, Role.BRAIN, pki.issue(Role.BRAIN, "b2")) as channel,
    ):
        (await watch(channel)).cancel()
        path.half_open()
        async with asyncio.timeout(BETWEEN_SERVERS):
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        (await watch(channel)).cancel()


async def test_ten_pings_a_second_are_not_called_abuse_l02(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    async with (
        silent(pki) as (service, address),
        pinging(address, pki.issue(Role.OPERATOR, "ada"), 0.1) as channel,
    ):
        stream = await watch(channel)
        await asyncio.sleep(1.5)  # a default server gives up after three
        assert not stream.done()
        assert service.ended.empty()
        stream.cancel()


async def test_a_path_of_half_a_second_is_a_path(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    async with silent(pki) as (_, address), fault_proxy(address) as path:
        path.delay(0.25)
        async with dial(path.address, Role.BRAIN, pki.issue(Role.OPERATOR, "ada")) as channel:
            (await watch(channel)).cancel()
