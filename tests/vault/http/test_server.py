"""The vault's HTTPS over mutual TLS, on real sockets."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from carpal.identity import Role
from carpal.signed import sign
from carpal.tls import IdentityFiles
from carpal.v1.vault_pb2 import RevocationList
from tests.pki import Pki
from tests.vault.http.conftest import LIMIT, Served
from vault.http import connection
from vault.http.exchange import Exchange

GET = b"GET /a HTTP/1.1\r\nHost: vault\r\n\r\n"


def post(body: bytes, more: bytes = b"") -> bytes:
    return b"POST /p HTTP/1.1\r\nHost: v\r\n%sContent-Length: %d\r\n\r\n" % (more, len(body)) + body


async def ask(served: Served, files: IdentityFiles | None) -> tuple[int, bytes]:
    caller = await served.dial(files)
    await caller.say(GET)
    return await caller.answer()


async def test_a_caller_is_who_its_certificate_says(served: Served, brain: IdentityFiles) -> None:
    other = served.pki.issue(Role.BRAIN, "brain-2")
    for files in (brain, other, brain):
        caller = await served.dial(files)
        await caller.say(post(b"hello"))
        assert await caller.answer() == (200, b"<hello>")
        await caller.close()
    assert [uri.rpartition("/")[2] for uri, _, _ in served.asked] == [
        "brain-1",
        "brain-2",
        "brain-1",
    ]


async def test_v16_headers_that_name_a_caller_are_ignored(
    served: Served, brain: IdentityFiles
) -> None:
    caller = await served.dial(brain)
    spoofed = b"X-Forwarded-Client-Cert: URI=spiffe://carpal.internal/brain/other\r\n"
    await caller.say(
        post(b"x", spoofed + b"X-Forwarded-For: 1.2.3.4\r\nForwarded: for=9.9.9.9\r\n")
    )
    assert (await caller.answer())[0] == 200
    assert served.asked[0][0] == "spiffe://carpal.internal/brain/brain-1"
    await caller.close()


async def test_who_shows_no_certificate_or_anothers_gets_no_answer(
    served: Served, brain: IdentityFiles, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Pki(tmp_path_factory.mktemp("other")).issue(Role.BRAIN, "brain-1")
    for files in (None, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask(served, files)
    assert not served.asked


async def test_a_role_without_a_row_is_refused(served: Served) -> None:
    for role, name in ((Role.DAEMON, "d"), (Role.OPERATOR, "o"), (Role.SESSIOND, "s")):
        caller = await served.dial(served.pki.issue(role, name))
        await caller.say(GET)
        status, body = await caller.answer()
        assert (status, b"ROLE_NOT_ALLOWED" in body) == (403, True)
        await caller.close()
    assert not served.asked


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /p HTTP/1.1\r\nHost: v\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /p HTTP/1.1\r\nHost: v\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /p HTTP/1.1\r\nHost: v\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /p HTTP/1.1\nHost: v\nContent-Length: 3\n\nabc",
        b"POST /p HTTP/1.1\r\nHost: v\r\nX: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
async def test_v27_what_is_framed_in_two_ways_is_refused_and_the_connection_ends(
    served: Served, brain: IdentityFiles, request_: bytes
) -> None:
    caller = await served.dial(brain)
    await caller.say(request_ + GET)
    rest = await caller.rest()
    assert rest.startswith(b"HTTP/1.1 400 ")
    assert rest.count(b"HTTP/1.1") == 1
    assert not served.asked


async def test_v27_a_bad_chunk_ends_the_request_that_is_under_way(
    served: Served, brain: IdentityFiles
) -> None:
    caller = await served.dial(brain)
    await caller.say(
        b"POST /p HTTP/1.1\r\nHost: v\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    )
    await caller.say(b"3;x=y\r\nabc\r\n0\r\n\r\n")
    assert (await caller.rest()).startswith(b"HTTP/1.1 400 ")
    assert not served.asked


async def test_v27_of_two_requests_sent_at_once_the_handler_sees_one(
    served: Served, brain: IdentityFiles
) -> None:
    caller = await served.dial(brain)
    await caller.say(post(b"first") + post(b"second"))
    rest = await caller.rest()
    assert [body for _, _, body in served.asked] == [b"first"]
    assert rest.count(b"HTTP/1.1 200") == 1
    assert rest.count(b"HTTP/1.1 400") == 1


async def test_requests_one_after_another_share_a_connection(
    served: Served, brain: IdentityFiles
) -> None:
    caller = await served.dial(brain)
    for turn in range(5):
        await caller.say(post(b"%d" % turn))
        assert await caller.answer() == (200, b"<%d>" % turn)
    await caller.say(
        b"POST /p HTTP/1.1\r\nHost: v\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    )
    assert await caller.answer() == (200, b"<ab>")
    await caller.close()


async def test_a_body_beyond_what_is_taken_is_refused(served: Served, brain: IdentityFiles) -> None:
    caller = await served.dial(brain)
    await caller.say(post(b"x" * (1024 * 1024 + 1)))
    assert (await caller.answer())[0] == 413
    await caller.close()


async def test_v51_a_head_that_trickles_is_ended_in_time(
    served: Served, brain: IdentityFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.HEAD_LIMIT == 10.0
    monkeypatch.setattr(connection, "HEAD_LIMIT", 0.5)
    silent, trickling = await served.dial(brain), await served.dial(brain)
    before = asyncio.get_running_loop().time()

    over = asyncio.ensure_future(trickling.rest())

    async def trickle() -> None:
        for byte in b"GET /a HTTP/1.1\r\nX: " + b"x" * 10_000:
            trickling.writer.write(bytes([byte]))
            await asyncio.wait([over], timeout=0.05)

    slow = asyncio.create_task(trickle())
    await over
    await silent.rest()
    assert 0.3 < asyncio.get_running_loop().time() - before < 5
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert not served.asked


async def test_a_body_that_comes_too_slowly_is_ended(
    served: Served, brain: IdentityFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_GRACE", 0.2)
    monkeypatch.setattr(connection, "_LOOK", 0.1)
    caller = await served.dial(brain)
    await caller.say(b"POST /p HTTP/1.1\r\nHost: v\r\nContent-Length: 100\r\n\r\nx")
    assert await caller.rest() == b""
    assert not served.asked


async def test_a_caller_has_so_many_connections_and_others_have_theirs(
    served: Served, brain: IdentityFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = served.pki.issue(Role.BRAIN, "brain-2")
    held = []
    for _ in range(256):
        caller = await served.dial(brain)
        held.append(caller)
    await held[-1].say(GET)
    assert (await held[-1].answer())[0] == 200
    assert await (await served.dial(brain)).rest() == b""
    fine = await served.dial(other)
    await fine.say(GET)
    assert (await fine.answer())[0] == 200
    for caller in [*held, fine]:
        await caller.close()


def revoke(served: Served, uri: str) -> None:
    listed = RevocationList(version=2)
    listed.revocations.add(identity=uri).before.FromDatetime(datetime.now(UTC))
    authority = served.pki.authority
    told = sign(authority.key, served.pki.ca_pem, listed.SerializeToString())
    assert served.revocations.take(told, served.pki.ca_pem)


async def endless(exchange: Exchange) -> None:
    await exchange.begin(200, {"content-type": "text/event-stream"})
    await exchange.write(b": begun\n\n")
    await asyncio.Event().wait()


async def test_v14_an_answer_that_goes_on_ends_when_its_caller_is_revoked(
    served: Served, brain: IdentityFiles
) -> None:
    served.handler = endless
    caller = await served.dial(brain)
    await caller.say(GET)
    async with asyncio.timeout(LIMIT):
        await caller.reader.readuntil(b"begun\n\n")
    revoke(served, brain.identity().uri)
    async with asyncio.timeout(5):
        await caller.rest()
    served.handler = None
    again = await served.dial(brain)
    await again.say(GET)
    status, body = await again.answer()
    assert (status, b"IDENTITY_REVOKED" in body) == (401, True)
    await again.close()


async def test_a_revoked_caller_is_refused_on_the_connection_that_it_has(
    served: Served, brain: IdentityFiles
) -> None:
    caller = await served.dial(brain)
    await caller.say(GET)
    assert (await caller.answer())[0] == 200
    revoke(served, brain.identity().uri)
    await caller.say(GET)
    assert (await caller.answer())[0] == 401
    await caller.close()


async def test_an_answer_ends_with_its_callers_certificate(served: Served) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    short = served.pki.issue(Role.BRAIN, "brief", not_after=soon)
    served.handler = endless
    caller = await served.dial(short)
    await caller.say(GET)
    async with asyncio.timeout(LIMIT):
        await caller.reader.readuntil(b"begun\n\n")
    await caller.rest()
    assert datetime.now(UTC) < soon + timedelta(seconds=5)


async def test_who_hangs_up_ends_what_goes_on_for_it(served: Served, brain: IdentityFiles) -> None:
    cancelled = asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        await exchange.body(10)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    served.handler = waits
    caller = await served.dial(brain)
    await caller.say(post(b"x"))
    await asyncio.wait([asyncio.create_task(cancelled.wait())], timeout=0.2)
    assert not cancelled.is_set()
    await caller.close()
    async with asyncio.timeout(LIMIT):
        await cancelled.wait()


async def test_what_a_handler_raises_reaches_neither_caller_nor_log(
    served: Served, brain: IdentityFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(exchange: Exchange) -> None:
        raise RuntimeError("the token is SUPERSECRET")

    served.handler = fails
    caller = await served.dial(brain)
    await caller.say(GET)
    status, body = await caller.answer()
    assert (status, body) == (500, b'{"error":{"reason":"INTERNAL"}}')
    assert "SUPERSECRET" not in caplog.text
    assert "RuntimeError" in str([record.__dict__ for record in caplog.records])
    await caller.close()


async def test_a_new_certificate_is_shown_from_the_next_handshake_on(
    served: Served, brain: IdentityFiles
) -> None:
    before = await served.dial(brain)
    first = before.writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    served.pki.issue(Role.VAULT, "vault")
    after = await served.dial(brain)
    second = after.writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    assert first != second
    for caller in (before, after):
        await caller.say(GET)
        assert (await caller.answer())[0] == 200
        await caller.close()


async def test_files_that_do_not_belong_together_change_nothing(
    served: Served, brain: IdentityFiles
) -> None:
    served.files.certificate.write_bytes(brain.certificate.read_bytes())
    caller = await served.dial(brain)
    await caller.say(GET)
    assert (await caller.answer())[0] == 200
    await caller.close()


async def test_an_old_connection_ends_with_its_answer(
    served: Served, brain: IdentityFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OLD", 0.0)
    caller = await served.dial(brain)
    await caller.say(GET)
    assert (await caller.rest()).startswith(b"HTTP/1.1 200")
