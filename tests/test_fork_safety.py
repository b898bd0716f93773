"""Children are spawned in any way while streams are live: gRPC's own fork handlers killed many."""

import asyncio
import os
from pathlib import Path

import grpc
import pytest

from carpal.client import dial
from carpal.identity import Role
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.server import serve
from carpal.tls import server_credentials
from tests.pace import SCALE, times
from tests.pki import Pki

AT_ONCE = 10


@pytest.mark.slow
async def test_three_hundred_children_with_a_user_are_all_good_while_streams_are_live_l32(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path)
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
    room = asyncio.Semaphore(AT_ONCE)

    async def spawn(number: int) -> bytes:
        async with room:
            # `user=` makes CPython fork rather than vfork; our own user needs no privilege.
            child = await asyncio.create_subprocess_exec(
                "/bin/echo", str(number), stdout=asyncio.subprocess.PIPE, user=os.getuid()
            )
            out, _ = await child.communicate()
            return out if child.returncode == 0 else f"{number}: {child.returncode}".encode()

    async def busy(channel: grpc.aio.Channel) -> None:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            await stub.Check(health_pb2.HealthCheckRequest())

    async with (
        serve("127.0.0.1:0", credentials, lambda server: None) as server,
        dial(server.address, Role.BRAIN, pki.issue(Role.DAEMON, "d")) as channel,
    ):
        streams = [asyncio.create_task(busy(channel)) for _ in range(3)]
        count = times(300, 3_000)
        async with asyncio.timeout(120 * SCALE):
            said = await asyncio.gather(*map(spawn, range(count)))
        assert not any(stream.done() for stream in streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    assert [out for number, out in enumerate(said) if out != b"%d\n" % number] == []
