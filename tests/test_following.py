"""Channels follow a renewed identity: new RPCs show it, and those that go on are left alone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from carpal.errors import Unreachable
from carpal.following import FollowingChannel
from carpal.identity import Role
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.server import Context, caller, serve
from carpal.tls import IdentityFiles, channel_credentials, server_credentials, write_file
from tests.hands.place import PATIENCE, until
from tests.pki import Pki

METHOD = "/carpal.v1.Session/{}"


class Said:
    """A server that answers with the serial number of its caller's certificate."""

    def __init__(self) -> None:
        self.more = asyncio.Event()

    async def once(self, _request: bytes, context: Context) -> bytes:
        """One answer."""
        return str(caller(context).serial).encode()

    async def twice(self, _request: bytes, context: Context) -> AsyncIterator[bytes]:
        """An answer, and another when the test wants it."""
        yield str(caller(context).serial).encode()
        await self.more.wait()
        yield str(caller(context).serial).encode()

    def register(self, server: grpc.aio.Server) -> None:
        """See serve."""
        handlers: Any = {
            "GetSession": grpc.unary_unary_rpc_method_handler(self.once),
            "TailEvents": grpc.unary_stream_rpc_method_handler(self.twice),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("carpal.v1.Session", handlers),)
        )


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
async def address(pki: Pki, said: Said) -> AsyncIterator[str]:
    credentials = server_credentials(pki.issue(Role.SESSIOND, "s"))
    async with serve("127.0.0.1:0", credentials, said.register) as server:
        yield server.address


@pytest.fixture
def files(pki: Pki) -> IdentityFiles:
    return pki.issue(Role.BRAIN, "b")


@pytest.fixture
async def channel(address: str, files: IdentityFiles) -> AsyncIterator[FollowingChannel]:
    def open_channel() -> grpc.aio.Channel:
        options = [("grpc.ssl_target_name_override", "sessiond.carpal.internal")]
        return grpc.aio.secure_channel(address, channel_credentials(files), options=options)

    async with FollowingChannel(files, open_channel, look=0.0) as following:
        yield following


async def once(method: Any) -> int:
    return int(await method(b"", timeout=PATIENCE))


async def test_a_stub_made_before_the_renewal_shows_the_new_certificate_after_it(
    channel: FollowingChannel, files: IdentityFiles, pki: Pki
) -> None:
    method = channel.unary_unary(METHOD.format("GetSession"))
    first = files.identity().serial
    assert await once(method) == first
    pki.issue(Role.BRAIN, "b")
    second = files.identity().serial
    assert second != first
    assert await once(method) == second


async def test_a_stream_goes_on_where_it_began_and_its_connection_ends_with_it(
    channel: FollowingChannel, files: IdentityFiles, pki: Pki, said: Said
) -> None:
    first = files.identity().serial
    call = channel.unary_stream(METHOD.format("TailEvents"))(b"", timeout=PATIENCE)
    stream = aiter(call)
    assert int(await anext(stream)) == first
    pki.issue(Role.BRAIN, "b")
    method = channel.unary_unary(METHOD.format("GetSession"))
    assert await once(method) == files.identity().serial
    assert len(channel._older) == 1
    said.more.set()
    assert int(await anext(stream)) == first
    assert [answer async for answer in stream] == []
    await until(lambda: not channel._older, "the old connection is kept for nobody")


async def test_an_identity_that_cannot_be_dialled_with_leaves_the_connection_there_is(
    channel: FollowingChannel, files: IdentityFiles, pki: Pki
) -> None:
    method = channel.unary_unary(METHOD.format("GetSession"))
    first = await once(method)
    whole = files.certificate.read_bytes()
    write_file(files.certificate, b"half of it")
    assert await once(method) == first
    write_file(files.certificate, whole)
    pki.issue(Role.BRAIN, "b")
    assert await once(method) == files.identity().serial != first


async def test_dialling_follows_by_itself(
    address: str, files: IdentityFiles, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    from carpal import following
    from carpal.client import dial, rpc_errors

    monkeypatch.setattr(following, "LOOK", 0.0)
    async with dial(address, Role.SESSIOND, files) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        pki.issue(Role.BRAIN, "b")
        method: Any = channel.unary_unary(METHOD.format("GetSession"))
        assert await once(method) == files.identity().serial
    with pytest.raises(Unreachable), rpc_errors("it"):
        async with dial("127.0.0.1:1", Role.SESSIOND, files, retry=False) as channel:
            await once(channel.unary_unary(METHOD.format("GetSession")))
