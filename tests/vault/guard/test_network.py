"""Only the host that was meant is spoken to: by a checked address, over verified TLS."""

import asyncio
import os
import socket
import threading
from pathlib import Path

import httpcore2
import pytest

from tests.pace import AT_ONCE
from tests.tls_ca import Authority
from tests.vault.guard.upstream import (
    HOST,
    Asked,
    Names,
    Upstream,
    Widened,
    guarded,
    reply,
    says,
    upstream,
)
from vault.guard import network
from vault.guard.errors import (
    AddressRefused,
    Cut,
    NotConnected,
    NotTrusted,
    Unresolved,
)
from vault.guard.headers import bearer
from vault.guard.network import SystemResolver
from vault.guard.targets import Target
from vault.guard.together import Together
from vault.guard.transport import Guard, Request
from vault.secret import Secret

TOKEN = "tok_0123456789abcdefghij"


def to(there: Upstream, path: str = "/mcp", host: str = HOST) -> Target:
    return Target(host, there.port, path)


def get(there: Upstream, path: str = "/mcp") -> Request:
    return Request("GET", to(there, path), [("Authorization", bearer(Secret(TOKEN)))])


async def test_a_name_is_looked_up_once_and_what_was_checked_is_dialled_v20(tmp_path: Path) -> None:
    names = Names({HOST: [["127.0.0.1"], ["10.0.0.1"]]})
    async with guarded(tmp_path, says(reply(b"here")), names=names) as (guard, [there]):
        async with guard.send(get(there)) as response:
            assert await response.read() == b"here"
        assert names.asked == [HOST]
        with pytest.raises(AddressRefused) as refused:
            async with guard.send(get(there)):
                pass
        assert refused.value.fields["address"] == "10.0.0.1"
        assert there.connections == 1


@pytest.mark.parametrize("hidden", ["10.0.0.1", "::1", "169.254.169.254", "64:ff9b::a9fe:a9fe"])
async def test_one_forbidden_address_among_several_refuses_all_v20(
    tmp_path: Path, hidden: str
) -> None:
    for mixed in (["127.0.0.1", hidden], [hidden, "127.0.0.1"]):
        names = Names({HOST: [mixed]})
        async with guarded(tmp_path, says(reply(b"")), names=names) as (guard, [there]):
            with pytest.raises(AddressRefused) as refused:
                async with guard.send(get(there)):
                    pass
            assert there.connections == 0
            assert not refused.value.sent


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "fd00:ec2::254", "100.100.100.200"]
)
async def test_an_address_in_the_url_is_checked_like_one_that_was_looked_up_v19(host: str) -> None:
    names = Names({})
    async with Guard(resolver=names) as guard:
        with pytest.raises(AddressRefused):
            async with guard.send(Request("GET", Target(host, 443, "/"))):
                pass
    assert names.asked == []


async def test_this_machines_own_name_leads_nowhere_with_the_systems_resolver_v19() -> None:
    assert "127.0.0.1" in await SystemResolver()("localhost", 443)
    async with Guard() as guard:
        with pytest.raises(AddressRefused):
            async with guard.send(Request("GET", Target("localhost", 443, "/"))):
                pass
    async with Guard(resolver=Names({})) as guard:
        with pytest.raises(Unresolved):
            async with guard.send(Request("GET", Target("nowhere.test", 443, "/"))):
                pass


async def test_a_certificate_of_another_name_or_authority_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "other CA")
    async with (
        upstream(authority, says(reply(b"")), "other.test") as named,
        upstream(stranger, says(reply(b""))) as unknown,
        Guard(
            rule=Widened([named.port, unknown.port]),
            resolver=Names({HOST: [["127.0.0.1"]]}),
            authorities=authority.bundle.read_text(),
        ) as guard,
    ):
        for there in (named, unknown):
            with pytest.raises(NotTrusted) as refused:
                async with guard.send(get(there)):
                    pass
            assert not refused.value.sent
            assert there.requests == []


async def test_nothing_is_sent_to_a_server_without_tls(tmp_path: Path) -> None:
    came = bytearray()
    done = asyncio.Event()

    async def clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.extend(await reader.read(65536))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        done.set()

    server = await asyncio.start_server(clear, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        Guard(rule=Widened([port]), resolver=Names({HOST: [["127.0.0.1"]]})) as guard,
    ):
        with pytest.raises(NotTrusted):
            async with guard.send(Request("GET", Target(HOST, port, f"/{TOKEN}"))):
                pass
        async with asyncio.timeout(AT_ONCE):
            await done.wait()
    assert TOKEN.encode() not in came


async def test_the_environment_has_no_effect_v22(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = socket.create_server(("127.0.0.1", 0))
    trap.settimeout(0.01)
    proxy = f"http://127.0.0.1:{trap.getsockname()[1]}"
    (tmp_path / "strangers").mkdir()
    stranger = Authority(tmp_path / "strangers", "strangers")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.setenv("SSL_CERT_FILE", str(stranger.bundle))
    monkeypatch.setenv("SSL_CERT_DIR", str(stranger.folder))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys.log"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    (tmp_path / ".netrc").write_text(f"machine {HOST} login u password from-netrc\n")
    (tmp_path / ".netrc").chmod(0o600)
    async with guarded(tmp_path, says(reply(b"direct"))) as (guard, [there]):
        async with guard.send(Request("GET", to(there))) as response:
            assert await response.read() == b"direct"
        assert b"uthorization" not in there.requests[0].head
        # Whom the variables would have trusted is a stranger.
        async with upstream(stranger, says(reply(b""))) as theirs:
            assert isinstance(guard._rule, Widened)
            guard._rule.ports.add(theirs.port)
            with pytest.raises(NotTrusted):
                async with guard.send(get(theirs)):
                    pass
    with pytest.raises(TimeoutError), trap:
        trap.accept()
    assert not (tmp_path / "keys.log").exists()
    assert os.environ["HTTPS_PROXY"] == proxy


async def test_nobody_listening_is_an_error_that_says_nothing_was_sent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    names = Names({HOST: [["127.0.0.1"]]})
    async with Guard(rule=Widened([port]), resolver=names) as guard:
        with pytest.raises(NotConnected) as refused:
            async with guard.send(Request("GET", Target(HOST, port, "/"))):
                pass
    assert not refused.value.sent


async def test_a_server_that_wants_a_certificate_of_ours_is_a_typed_error(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def none(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    asks = authority.server(asks=True)
    server = await asyncio.start_server(none, "127.0.0.1", 0, ssl=asks)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        Guard(
            rule=Widened([port]),
            resolver=Names({"localhost": [["127.0.0.1"]]}),
            authorities=authority.bundle.read_text(),
        ) as guard,
    ):
        for _ in range(3):
            with pytest.raises((Cut, NotTrusted)):
                async with guard.send(Request("GET", Target("localhost", port, "/"))):
                    pass


@pytest.mark.parametrize("after", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_what_breaks_tls_after_its_handshake_is_a_typed_error(
    tmp_path: Path, after: bytes
) -> None:
    async def forged(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(after)
        await writer.drain()
        below = writer.transport._ssl_protocol._transport  # type: ignore[attr-defined]
        below.write(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that nobody encrypted

    async with guarded(tmp_path, forged) as (guard, [there]):

        async def ask() -> None:
            async with guard.send(get(there)) as response:
                await response.read()

        with pytest.raises(Cut):
            await ask()


async def test_names_are_looked_up_only_so_many_at_once_and_one_given_up_makes_room_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "_LOOKUPS", 1)
    go = threading.Event()

    def slow(*_: object, **__: object) -> list[object]:
        go.wait(AT_ONCE)
        return [(2, 1, 6, "", ("192.0.2.1", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    resolver = SystemResolver()
    first = asyncio.create_task(resolver("a.test", 443))
    second = asyncio.create_task(resolver("b.test", 443))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert [each.name for each in threading.enumerate()].count("resolve") == 1
    go.set()
    assert await second == ["192.0.2.1"]


class Noted(httpcore2.AsyncNetworkStream):
    """A stream that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self.broken = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        self.done.append(b"(read)")
        return b"reply"

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if self.broken:
            raise httpcore2.WriteError
        self.done.append(buffer)


async def test_a_head_goes_with_the_body_and_without_one_before_the_reply_is_read() -> None:
    inner = Noted()
    stream = Together(inner)
    for part in (b"head ", b"body", b"more", b""):
        await stream.write(part)
    assert await stream.read(9) == b"reply"
    await stream.write(b"head")
    assert await stream.read(9) == b"reply"
    await stream.write(b"head")
    inner.broken = True  # who hangs up early may have answered
    assert await stream.read(9) == b"reply"
    assert [each for each in inner.done if each] == [
        b"head body", b"more", b"(read)", b"head", b"(read)", b"(read)",
    ]  # fmt: skip
