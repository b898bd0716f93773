"""A machine enrols once, with the right authority only, and never loses what it had."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from carpal.errors import BadInput, CarpalError, Denied, Unreachable
from carpal.identity import Role
from carpal.proof import Token, ca_pin
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, Shown, new_key, server_credentials
from carpal.v1 import enrollment_pb2 as pb
from carpal.v1 import enrollment_pb2_grpc
from hands.enroll import Links, enroll, links_path, renew
from tests.pki import Pki
from tests.trust import BRAINS, Trust, trust
from vault.authority import ca
from vault.opened import authority_of

NOW = datetime.now(UTC)


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "state") as served:
        yield served


@pytest.fixture
def identity_dir(tmp_path: Path) -> Path:
    return tmp_path / "hand" / "identity"


async def test_a_token_becomes_an_identity_and_links(domain: Trust, identity_dir: Path) -> None:
    enrolled = await enroll(await domain.token("build-1", pool="gpu"), identity_dir)
    loaded = IdentityFiles(identity_dir).load_valid()
    assert loaded.identity == enrolled.identity
    assert loaded.identity.uri == "spiffe://carpal.internal/daemon/build-1"
    assert loaded.ca == authority_of(domain.files).pem
    assert names(identity_dir) == ["ca.pem", "cert.pem", "key.pem"]
    links = Links.load(links_path(identity_dir))
    assert links == Links(BRAINS, domain.enrollment_address)
    assert enrolled.links == links


async def test_a_used_token_is_refused_and_the_first_identity_stays(
    domain: Trust, identity_dir: Path
) -> None:
    token = await domain.token()
    await enroll(token, identity_dir)
    before = IdentityFiles(identity_dir).load().chain
    with pytest.raises(Denied) as raised:
        await enroll(token, identity_dir)
    assert raised.value.reason is Reason.TOKEN_REFUSED
    assert raised.value.exit_code == 4
    assert IdentityFiles(identity_dir).load_valid().chain == before
    assert names(identity_dir) == ["ca.pem", "cert.pem", "key.pem"], "no key of a refused request"


async def test_two_machines_that_race_for_a_token_make_one_winner(
    domain: Trust, tmp_path: Path
) -> None:
    token = await domain.token()
    folders = [tmp_path / f"machine-{number}" / "identity" for number in range(6)]
    results = await asyncio.gather(
        *(enroll(token, folder) for folder in folders), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, CarpalError)]
    assert len(refused) == 5
    assert {error.reason for error in refused} == {Reason.TOKEN_REFUSED}
    assert [IdentityFiles(folder).exists() for folder in folders].count(True) == 1


async def test_a_lost_answer_is_asked_for_again_with_the_same_request(
    domain: Trust, identity_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is spent, the answer never arrived; the same machine still gets in."""
    token = await domain.token()

    def no_disk(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(IdentityFiles, "stage", no_disk)
        with pytest.raises(OSError, match="no space"):
            await enroll(token, identity_dir)
    assert not IdentityFiles(identity_dir).exists()
    enrolled = await enroll(token, identity_dir)
    assert IdentityFiles(identity_dir).load_valid().identity == enrolled.identity


async def test_another_authority_than_the_token_names_gets_nothing(
    domain: Trust, identity_dir: Path
) -> None:
    token = replace(await domain.token(), pins=(bytes(32),))
    with pytest.raises(Denied) as raised:
        await enroll(token, identity_dir)
    assert raised.value.reason is Reason.CA_MISMATCH
    assert not identity_dir.exists()
    assert not (await token_info(domain, token)).HasField("used")


async def test_a_wrong_secret_is_refused_and_the_token_stays_good(
    domain: Trust, identity_dir: Path
) -> None:
    token = await domain.token()
    with pytest.raises(Denied) as raised:
        await enroll(replace(token, secret=bytes(32)), identity_dir)
    assert raised.value.reason is Reason.TOKEN_REFUSED
    assert (await enroll(token, identity_dir)).identity.name == "build-1"


async def test_a_server_that_is_no_brain_gets_no_proof(tmp_path: Path, identity_dir: Path) -> None:
    pki = Pki(tmp_path)
    asked: list[Any] = []
    async with enrollment(pki.issue("daemon", "d"), asked.append) as address:
        with pytest.raises(Denied) as raised:
            await enroll(token_for(pki, address), identity_dir)
    assert raised.value.reason is Reason.CA_MISMATCH
    assert not asked


async def test_a_pinned_authority_shown_by_a_thief_gets_no_proof(
    tmp_path: Path, identity_dir: Path
) -> None:
    """Anyone may show our CA's certificate beside a leaf that it did not sign."""
    ours = Pki(tmp_path / "ours")
    asked: list[Any] = []
    thief = Pki(tmp_path / "thief").issue("brain", "b")
    loaded = thief.load()
    leaf = ca.pem(x509.load_pem_x509_certificate(loaded.chain))
    thief.install(loaded.key_pem, leaf + ours.ca_pem, loaded.ca)
    async with enrollment(thief, asked.append) as address:
        with pytest.raises(Denied) as raised:
            await enroll(token_for(ours, address), identity_dir)
    assert raised.value.reason is Reason.CA_MISMATCH
    assert not asked


async def test_a_brain_whose_certificate_expired_is_named_with_both_clocks(
    tmp_path: Path, identity_dir: Path
) -> None:
    pki = Pki(tmp_path)
    files = pki.issue("brain", "b")
    async with enrollment(files, print) as address:
        past = NOW - timedelta(days=2)
        pki.issue("brain", "b", not_before=past, not_after=past + timedelta(days=1))
        with pytest.raises(Denied, match="clock") as raised:
            await enroll(token_for(pki, address), identity_dir)
    assert raised.value.reason is Reason.CERTIFICATE_EXPIRED


async def test_nobody_there_is_unreachable(tmp_path: Path, identity_dir: Path) -> None:
    pki = Pki(tmp_path)
    async with enrollment(pki.issue("brain", "b"), print) as address:
        pass
    with pytest.raises(Unreachable) as raised:
        await enroll(token_for(pki, address), identity_dir)
    assert raised.value.exit_code == 3


async def test_a_port_that_speaks_no_tls_is_unreachable(tmp_path: Path, identity_dir: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(Unreachable, match="TLS"):
            await enroll(token_for(Pki(tmp_path), f"{host}:{port}"), identity_dir)


@pytest.mark.parametrize("trick", ["other key", "other ca", "other role", "junk"])
async def test_an_answer_that_is_not_ours_is_not_written(
    tmp_path: Path, identity_dir: Path, trick: str
) -> None:
    pki = Pki(tmp_path / "pki")

    def answer(request: Any) -> pb.EnrollResponse:
        key = ca.requested_key(request.certificate_request)
        authority = Pki(tmp_path / "x").authority if trick == "other ca" else pki.authority
        claims = ca.Claims(Role.DAEMON, "build-1", "default")
        if trick == "other role":
            claims = ca.Claims(Role.BRAIN, "build-1")
        leaf = ca.issue(
            authority,
            claims,
            public_key=new_key().public_key() if trick == "other key" else key,
            not_before=NOW - timedelta(minutes=5),
            not_after=NOW + timedelta(hours=1),
        )
        chain = b"junk" if trick == "junk" else ca.chain_pem(authority, leaf)
        # A rogue CA in the bundle is not trusted: no pin names it.
        return pb.EnrollResponse(certificate_chain=chain, ca_bundle=authority.pem + pki.ca_pem)

    async with enrollment(pki.issue("brain", "b"), answer) as address:
        with pytest.raises(Denied) as raised:
            await enroll(token_for(pki, address), identity_dir)
    assert raised.value.reason is Reason.IDENTITY_INVALID
    assert not IdentityFiles(identity_dir).exists()
    assert not links_path(identity_dir).exists()


async def test_a_renewal_has_a_new_key_and_the_same_claims(
    domain: Trust, identity_dir: Path
) -> None:
    first = await enroll(await domain.token("build-1", pool="gpu"), identity_dir)
    old_key = IdentityFiles(identity_dir).load().key_pem
    tried = []

    async def connect(candidate: Shown) -> None:
        tried.append(candidate.load_valid().identity)
        assert IdentityFiles(identity_dir).load().key_pem == old_key

    second = await renew(identity_dir, domain.enrollment_address, connect)
    loaded = IdentityFiles(identity_dir).load_valid()
    assert tried == [second] == [loaded.identity]
    assert loaded.key_pem != old_key
    assert (loaded.identity.uri, loaded.identity.pool) == (first.identity.uri, "gpu")
    assert loaded.identity.serial != first.identity.serial
    assert names(identity_dir) == ["ca.pem", "cert.pem", "key.pem"]


async def test_a_renewal_that_does_not_connect_leaves_the_old_identity(
    domain: Trust, identity_dir: Path
) -> None:
    await enroll(await domain.token(), identity_dir)
    before = IdentityFiles(identity_dir).load().chain

    async def connect(candidate: Shown) -> None:
        raise ConnectionError(candidate.identity().name)

    with pytest.raises(ConnectionError):
        await renew(identity_dir, domain.enrollment_address, connect)
    assert IdentityFiles(identity_dir).load_valid().chain == before


async def test_a_renewal_of_another_authoritys_certificate_is_refused(
    domain: Trust, tmp_path: Path
) -> None:
    files = Pki(tmp_path / "other").issue("daemon", "build-1")
    loaded = files.load()
    files.install(loaded.key_pem, loaded.chain, authority_of(domain.files).pem)
    with pytest.raises(Denied) as raised:
        await renew(files.directory, domain.enrollment_address, _nothing)
    assert raised.value.reason is Reason.RENEWAL_REFUSED
    assert files.load().chain == loaded.chain


async def _nothing(_candidate: Shown) -> None:
    """Whoever is shown it takes it."""


async def test_no_secret_is_logged_or_written(
    domain: Trust, identity_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = await domain.token()
    with caplog.at_level(logging.DEBUG):
        await enroll(token, identity_dir)
        with pytest.raises(CarpalError) as raised:
            await enroll(token, identity_dir)
    logged = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for said in (logged, repr(raised.value), str(raised.value), repr(token)):
        assert token.secret.hex() not in said
        assert repr(token.secret) not in said
    files = [path for path in identity_dir.parent.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert token.secret not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"brains": 1, "enrollment": ""}', "\x00"])
def test_damaged_links_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "links.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"links\.json is damaged"):
        Links.load(path)


def test_links_are_plain_json(tmp_path: Path) -> None:
    Links(("a:1",), "b:2").save(tmp_path / "links.json")
    body = json.loads((tmp_path / "links.json").read_text())
    assert body == {"brains": ["a:1"], "enrollment": "b:2"}
    with pytest.raises(BadInput, match="carpal hand enroll"):
        Links.load(tmp_path / "none.json")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def token_for(pki: Pki, address: str) -> Token:
    return Token(address, (ca_pin(pki.authority.der),), "tok_1", bytes(32))


async def token_info(domain: Trust, token: Token) -> Any:
    from carpal.v1 import vault_pb2

    stub = await domain.vault()
    listed = await stub.ListTokens(vault_pb2.ListTokensRequest(), timeout=10)
    return next(info for info in listed.tokens if info.token_id == token.token_id)


@asynccontextmanager
async def enrollment(files: IdentityFiles, answer: Callable[[Any], Any]) -> AsyncIterator[str]:
    """A scripted enrolment port."""

    class Scripted(enrollment_pb2_grpc.EnrollmentServicer):
        async def Enroll(
            self, request: pb.EnrollRequest, context: grpc.aio.ServicerContext[Any, Any]
        ) -> pb.EnrollResponse:
            response: pb.EnrollResponse = answer(request)
            return response

    async with serve(
        "127.0.0.1:0",
        server_credentials(files, require_client=False),
        lambda server: enrollment_pb2_grpc.add_EnrollmentServicer_to_server(
            Scripted(),  # type: ignore[abstract]
            server,
        ),
        authorize=False,
    ) as server:
        yield server.address
