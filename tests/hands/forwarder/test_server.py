"""A hand's forwarder over real sockets. Case H38 of the hands."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from pathlib import Path

import pytest

from hands.forwarder import bodies, server
from hands.forwarder.exchange import Way
from hands.forwarder.rules import Rule
from hands.forwarder.server import Forwarder
from tests.hands.forwarder.place import OK, Host, everything, forwarding, host, nowhere, self_signed
from tests.hands.place import PATIENCE


def status(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


def rule(one: Host, **more: object) -> dict[str, object]:
    return {"host": f"127.0.0.1:{one.port}", **more}


async def test_h38_no_host_is_reached_without_a_rule(tmp_path: Path) -> None:
    async with host() as there, forwarding(tmp_path) as client:
        said = await client.get(f"http://127.0.0.1:{there.port}/")
        assert status(said) == 403
        assert b"no egress rules" in said
        said = await client.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % there.port)
        assert status(said) in (400, 403)
        assert not there.heads


async def test_h38_an_allowed_host_is_reached_and_another_is_not(tmp_path: Path) -> None:
    async with host() as there, host() as other, forwarding(tmp_path, rule(there)) as client:
        said = await client.get(f"http://127.0.0.1:{there.port}/a?b=c", "X: y")
        assert said.endswith(b"Connection: close\r\n\r\nhi\n")
        assert there.heads == [
            b"GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX: y\r\nConnection: close\r\n\r\n"
            % there.port
        ]
        assert status(await client.get(f"http://127.0.0.1:{other.port}/")) == 403
        assert not other.heads


async def test_h38_a_name_that_leads_to_loopback_is_refused_though_a_rule_names_it(
    tmp_path: Path,
) -> None:
    async with host() as there:
        named = {"host": f"example.com:{there.port}"}
        async with forwarding(tmp_path, named) as client:
            said = await client.get(f"http://example.com:{there.port}/")
            assert status(said) == 403
            assert b"example.com is at 127.0.0.1, which is not public" in said
        async with forwarding(tmp_path, named, rule(there)) as client:
            assert status(await client.get(f"http://example.com:{there.port}/")) == 200
            assert b"Host: example.com:" in there.heads[0]


async def test_a_name_gets_no_more_at_an_address_than_the_address_own_rule_allows(
    tmp_path: Path,
) -> None:
    async with host() as there:
        named = {"host": f"example.com:{there.port}"}
        async with forwarding(tmp_path, named, rule(there, paths=["/open/*"])) as client:
            assert status(await client.get(f"http://example.com:{there.port}/open/x")) == 200
            assert status(await client.get(f"http://example.com:{there.port}/secret")) == 403


async def test_methods_and_paths_decide_and_connect_would_hide_them(tmp_path: Path) -> None:
    async with host() as there:
        looks = rule(there, methods=["GET"], paths=["/simple/*"])
        async with forwarding(tmp_path, looks) as client:
            base = f"http://127.0.0.1:{there.port}"
            assert status(await client.get(f"{base}/simple/x")) == 200
            assert status(await client.get(f"{base}/simple/../x")) == 403
            assert status(await client.get(f"{base}/other")) == 403
            assert status(await client.get(f"{base}/simple/x", method="DELETE")) == 403
            said = await client.get(f"{base}/simple/x", "X-HTTP-Method-Override: DELETE")
            assert status(said) == 403
            place = b"127.0.0.1:%d" % there.port
            said = await client.send(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (place, place))
            assert b"403 the rule for 127.0.0.1 looks at methods and paths" in said
        assert len(there.heads) == 1


async def test_a_tunnel_passes_bytes_both_ways_and_the_end_of_each(tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])

    async with host(b"", echo) as there, forwarding(tmp_path, rule(there)) as client:
        place = b"127.0.0.1:%d" % there.port
        said = await client.send(
            b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nfirst\r\n\r\nabc" % (place, place), end=True
        )
        assert said == b"HTTP/1.1 200 Connected\r\n\r\ncba"
        assert there.heads == [b"first\r\n\r\n"]


async def test_a_request_sent_ahead_is_never_passed_on(tmp_path: Path) -> None:
    async with host() as there, host() as other, forwarding(tmp_path, rule(there)) as client:
        ahead = f"GET http://127.0.0.1:{other.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        said = await client.get(f"http://127.0.0.1:{there.port}/", body=ahead * 2)
        assert said.count(b"HTTP/1.1") == 1
        assert b"Connection: close" in said
        assert len(there.heads) == 1
        assert not other.heads


async def test_a_connection_is_not_kept_for_another_host(tmp_path: Path) -> None:
    async with host() as there, forwarding(tmp_path, rule(there)) as client:
        said = await client.get(f"http://127.0.0.1:{there.port}/", "Connection: keep-alive")
        assert said.count(b"Connection: ") == 1
        assert b"Connection: close" in said  # and `get` saw the end of the stream


async def test_a_body_is_passed_on_whole_and_the_bytes_behind_it_are_not(tmp_path: Path) -> None:
    bodies_seen = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies_seen.append(await reader.readexactly(5))
        writer.write(OK)

    async with host(b"", take) as there, forwarding(tmp_path, rule(there)) as client:
        url = f"http://127.0.0.1:{there.port}/"
        said = await client.get(url, "Content-Length: 5", method="POST", body=b"12345GET / x")
        assert said.endswith(b"hi\n")
        assert bodies_seen == [b"12345"]


async def test_chunks_are_framed_anew(tmp_path: Path) -> None:
    seen = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nT: r\r\n\r\n"
        )
        await reader.read()  # and the connection stays: the last chunk is the end

    async with host(b"", take) as there, forwarding(tmp_path, rule(there)) as client:
        body = b"003;ext=1\r\nabc\r\n0\r\nTrailer: x\r\n\r\n"
        said = await client.get(
            f"http://127.0.0.1:{there.port}/",
            "Transfer-Encoding: chunked",
            method="POST",
            body=body,
        )
        assert seen == [b"3\r\nabc\r\n0\r\n\r\n"]
        assert said.endswith(b"\r\n\r\n2\r\nok\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "body", [b"5\r\nabcdefgh\r\n", b"x\r\n", b"-1\r\n", b"a" * 2000, b"0x3\r\n"]
)
async def test_a_malformed_chunk_ends_the_exchange(tmp_path: Path, body: bytes) -> None:
    async def wait(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with host(b"", wait) as there, forwarding(tmp_path, rule(there)) as client:
        said = await client.get(
            f"http://127.0.0.1:{there.port}/",
            "Transfer-Encoding: chunked",
            method="POST",
            body=body + b"\r\n" * 3,
        )
        assert status(said) == 400


async def test_continue_is_passed_on_before_the_body_is(tmp_path: Path) -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(OK)

    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    async with (
        host(go_on, take) as there,
        forwarding(tmp_path, rule(there)) as client,
        asyncio.timeout(PATIENCE),
    ):
        reader, writer = await client.open()
        place = b"127.0.0.1:%d" % there.port
        writer.write(
            b"POST http://%s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n"
            b"Expect: 100-continue\r\n\r\n" % (place, place)
        )
        assert await reader.readuntil(b"\r\n\r\n") == go_on
        writer.write(b"ab")
        assert (await reader.read()).endswith(b"hi\n")
        writer.close()


async def test_an_answer_that_breaks_off_does_not_look_whole(tmp_path: Path) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nhi\n"
    async with host(cut) as there, forwarding(tmp_path, rule(there)) as client:
        said = await client.get(f"http://127.0.0.1:{there.port}/")
        assert b"Content-Length: 30" in said or not said


async def test_an_answer_without_a_length_ends_with_its_connection(tmp_path: Path) -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000
    async with host(endless) as there, forwarding(tmp_path, rule(there)) as client:
        said = await client.get(f"http://127.0.0.1:{there.port}/")
        assert said.partition(b"\r\n\r\n")[2] == b"x" * 300_000


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0\r\n\r\n", b"x" * 100_000])
async def test_a_host_that_speaks_no_http_is_told_of(tmp_path: Path, answer: bytes) -> None:
    async with host(answer) as there, forwarding(tmp_path, rule(there)) as client:
        assert status(await client.get(f"http://127.0.0.1:{there.port}/")) == 502


async def test_a_head_that_comes_drop_by_drop_or_never_ends_is_not_waited_for(
    tmp_path: Path,
) -> None:
    async with forwarding(tmp_path, way=Way(nowhere, head_limit=0.1)) as client:
        assert status(await client.send(b"GET http://a.b/ HTTP/1.1\r\n")) == 408
        assert status(await client.send(b"GET http://a.b/ HTTP/1.1\r\nX: " + b"y" * 99_999)) == 431


async def test_a_head_that_comes_drop_by_drop_has_no_more_time_than_another(tmp_path: Path) -> None:
    async with (
        forwarding(tmp_path, way=Way(nowhere, head_limit=0.2)) as client,
        asyncio.timeout(PATIENCE),
    ):
        reader, writer = await client.open()
        answer = asyncio.create_task(everything(reader))
        # Past the transport: one write after the other end has closed would cost it the answer.
        handle = os.dup(writer.get_extra_info("socket").fileno())
        try:
            while not (await asyncio.wait({answer}, timeout=0.01))[0]:
                with contextlib.suppress(BrokenPipeError):
                    os.write(handle, b"x")
        finally:
            os.close(handle)
        assert status(answer.result()) == 408
        writer.close()


async def test_a_host_at_an_ipv6_address_is_reached_and_named_with_brackets(tmp_path: Path) -> None:
    try:
        server_at_six = await asyncio.start_server(Host(OK, None).serve, "::1", 0)
    except OSError:
        pytest.skip("no IPv6 on this machine's loopback")
    async with server_at_six:
        port = server_at_six.sockets[0].getsockname()[1]
        async with forwarding(tmp_path, {"host": f"[::1]:{port}"}) as client:
            assert status(await client.get(f"http://[::1]:{port}/")) == 200
            assert status(await client.get(f"http://[0:0::1]:{port}/")) == 200
            assert status(await client.get(f"http://[::ffff:127.0.0.1]:{port}/")) == 403
            assert status(await client.get(f"http://[::1%lo]:{port}/")) == 400


async def test_a_name_in_any_alphabet_with_or_without_a_dot_is_the_same_host(
    tmp_path: Path,
) -> None:
    async with host() as there:
        named = {"host": f"B\u00fccher.example:{there.port}"}
        async with forwarding(tmp_path, named, rule(there)) as client:
            for name in ("xn--bcher-kva.example", "XN--BCHER-KVA.example."):
                assert status(await client.get(f"http://{name}:{there.port}/")) == 200
            assert status(await client.get(f"http://bucher.example:{there.port}/")) == 403


async def test_an_answer_is_passed_on_as_it_comes(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def wait(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.drain()
        await seen.wait()
        writer.write(b"data: 2\n\n")

    first = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
    async with (
        host(first, wait) as there,
        forwarding(tmp_path, rule(there)) as client,
        asyncio.timeout(PATIENCE),
    ):
        reader, writer = await client.open()
        place = b"127.0.0.1:%d" % there.port
        writer.write(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (place, place))
        await reader.readuntil(b"data: 1\n\n")
        seen.set()
        assert await reader.read() == b"data: 2\n\n"
        writer.close()


async def test_a_hand_that_opens_connections_and_says_nothing_holds_up_itself_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    slow = Way(nowhere, head_limit=60.0)
    async with (
        host() as there,
        forwarding(tmp_path / "a", rule(there), way=slow) as hostile,
        forwarding(tmp_path / "b", rule(there)) as client,
        asyncio.timeout(PATIENCE),
    ):
        held = [await hostile.open() for _ in range(server.CONNECTIONS)]
        assert status(await client.get(f"http://127.0.0.1:{there.port}/")) == 200
        more = asyncio.create_task(hostile.get(f"http://127.0.0.1:{there.port}/"))
        assert not (await asyncio.wait({more}, timeout=0.1))[0]
        held[0][1].close()  # one that ends makes room
        assert status(await more) == 200
        for _, writer in held:
            writer.close()


async def test_an_https_url_is_fetched_by_tls_that_is_checked(tmp_path: Path) -> None:
    key = tmp_path / "host.pem"
    key.write_bytes(self_signed("127.0.0.1"))
    speaking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    speaking.load_cert_chain(key)

    async def trusting() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(key))

    async with host(tls=speaking) as there:
        url = f"https://127.0.0.1:{there.port}/x"
        async with forwarding(tmp_path, rule(there, paths=["/x"])) as client:
            said = await client.get(url)
            assert status(said) == 502
            assert b"127.0.0.1 is not trusted: self-signed certificate" in said
        assert not there.heads
        way = Way(nowhere, trust=trusting)
        async with forwarding(tmp_path, rule(there, paths=["/x"]), way=way) as client:
            assert status(await client.get(url)) == 200
            assert status(await client.get(url.replace("/x", "/y"))) == 403
        assert len(there.heads) == 1


async def test_what_a_mount_needs_is_allowed_meanwhile(tmp_path: Path) -> None:
    async with host() as there, forwarding(tmp_path) as client:
        url = f"http://127.0.0.1:{there.port}/"
        with client.forwarder.also([Rule("127.0.0.1", there.port)]):
            assert status(await client.get(url)) == 200
        assert status(await client.get(url)) == 403


async def test_the_next_daemon_listens_in_place_of_the_last(tmp_path: Path) -> None:
    first = Forwarder.open(tmp_path, "h", ())
    await first.close()
    await first.close()
    async with host() as there, forwarding(tmp_path, rule(there)) as client:
        assert status(await client.get(f"http://127.0.0.1:{there.port}/")) == 200


async def test_what_the_hand_puts_in_the_sockets_place_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    outside.chmod(0o600)
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "egress").symlink_to(outside)
    async with forwarding(folder):
        assert not (folder / "egress").is_symlink()
    assert outside.read_text() == "mine"
    assert outside.stat().st_mode & 0o777 == 0o600
    (folder / "egress").unlink()
    (folder / "egress/full").mkdir(parents=True)
    async with host() as there, forwarding(folder, rule(there)) as client:
        assert status(await client.get(f"http://127.0.0.1:{there.port}/")) == 200


async def test_the_socket_is_the_hands_users_and_the_folders_depth_does_not_matter(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    if os.geteuid() == 0:
        os.chown(deep, 54321, 54322)
    async with forwarding(deep):
        assert (deep / "egress").stat().st_mode & 0o777 == 0o600
        assert (deep / "egress").stat().st_uid == deep.stat().st_uid
        handle = os.open(deep, os.O_PATH)
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(f"/proc/self/fd/{handle}/egress")
        os.close(handle)


async def test_decisions_are_logged_without_the_query_and_only_so_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_LINES", 3)
    caplog.set_level(logging.INFO)
    async with host() as there, forwarding(tmp_path, rule(there)) as client:
        await client.get(f"http://127.0.0.1:{there.port}/a?token=secret")
        for _ in range(4):
            await client.get("http://evil.example/x")
    lines = [record for record in caplog.records if record.name == "hands.forwarder.server"]
    assert [line.getMessage() for line in lines] == [
        "egress allowed",
        "egress refused",
        "egress refused",
    ]
    allowed, refused = lines[0].__dict__, lines[1].__dict__
    assert (allowed["hand_id"], allowed["method"], allowed["path"]) == ("h", "GET", "/a")
    assert allowed["address"] == "127.0.0.1"
    assert refused["host"] == "evil.example:80"
    assert "not among" in refused["why"]
    assert "secret" not in caplog.text


async def test_closing_ends_what_goes_on(tmp_path: Path) -> None:
    async with host() as there:
        async with forwarding(tmp_path, rule(there)) as client:
            reader, writer = await client.open()
            writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost:\r\n\r\n" % there.port)
            async with asyncio.timeout(PATIENCE):
                assert b"200" in await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()


async def test_nothing_is_waited_for_without_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "IDLE_LIMIT", 0.1)

    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"
    async with host(half, hang) as there, forwarding(tmp_path, rule(there)) as client:
        said = await client.get(f"http://127.0.0.1:{there.port}/")
        assert not said.endswith(b"hi\n")
