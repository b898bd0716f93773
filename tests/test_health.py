"""carpal.health: what a balancer or a probe is told, in the words that it knows."""

import asyncio
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from carpal.client import dial
from carpal.identity import Role
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.server import serve
from carpal.tls import server_credentials
from tests.pace import SCALE
from tests.pki import Pki

WAIT = 10.0 * SCALE
STATUS = health_pb2.HealthCheckResponse
ELSEWHERE = """
import sys
sys.modules["grpc_health"] = None  # as in the base install
from carpal.rpc import health_pb2, health_pb2_grpc
assert health_pb2.__name__ == "carpal.rpc.health_pb2", health_pb2.__name__
answer = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
asked = health_pb2.HealthCheckRequest(service="s")
print(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
print(answer.SerializeToString().hex(), asked.SerializeToString().hex())
"""


async def test_who_follows_hears_that_the_server_serves_and_then_that_it_leaves(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path)
    leaving, left = asyncio.Event(), asyncio.Event()

    async def drain() -> None:
        await left.wait()

    async def served(bound: asyncio.Future[str]) -> None:
        credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
        async with serve("127.0.0.1:0", credentials, lambda to: None, drain=drain) as server:
            bound.set_result(server.address)
            await leaving.wait()

    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as tasks:
        tasks.create_task(served(bound))
        async with dial(await bound, Role.BRAIN, pki.issue(Role.DAEMON, "d")) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            said = aiter(stub.Watch(health_pb2.HealthCheckRequest()))
            assert (await anext(said)).status == STATUS.SERVING
            assert (await stub.Check(health_pb2.HealthCheckRequest())).status == STATUS.SERVING
            leaving.set()
            assert (await anext(said)).status == STATUS.NOT_SERVING
            left.set()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await anext(said)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_part_that_the_server_does_not_have_is_unknown_and_no_failure(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path)
    request = health_pb2.HealthCheckRequest(service="carpal.v1.Nothing")
    async with (
        asyncio.timeout(WAIT),
        serve(
            "127.0.0.1:0", server_credentials(pki.issue(Role.BRAIN, "b")), lambda to: None
        ) as server,
        dial(server.address, Role.BRAIN, pki.issue(Role.DAEMON, "d")) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as asked:
            await stub.Check(request)
        assert asked.value.code() is grpc.StatusCode.NOT_FOUND
        watching = stub.Watch(request)
        assert (await anext(aiter(watching))).status == STATUS.SERVICE_UNKNOWN
        watching.cancel()


def test_our_messages_are_those_of_grpcs_own_package_on_the_wire() -> None:
    from grpc_health.v1 import health_pb2 as theirs

    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        check=True, capture_output=True, text=True, timeout=60 * SCALE,
    )  # fmt: skip
    name, answer, asked = done.stdout.split()
    assert name == theirs.DESCRIPTOR.services_by_name["Health"].full_name
    read = theirs.HealthCheckResponse.FromString(bytes.fromhex(answer))
    assert read.status == theirs.HealthCheckResponse.NOT_SERVING
    assert theirs.HealthCheckRequest.FromString(bytes.fromhex(asked)).service == "s"
