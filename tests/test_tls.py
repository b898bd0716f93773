"""Identities on disk are whole, private and followed when they rotate."""

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from carpal import signed
from carpal.client import dial
from carpal.errors import BadInput, CarpalError, Denied
from carpal.identity import Role
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import (
    IdentityFiles,
    channel_credentials,
    key_pem,
    new_key,
    server_credentials,
    write_file,
)
from carpal.v1 import types_pb2
from tests.pki import Pki

NOW = datetime.now(UTC)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def test_private_files_are_for_the_owner_alone(pki: Pki) -> None:
    before = os.umask(0)
    try:
        files = pki.issue("brain", "b")
    finally:
        os.umask(before)
    assert files.key.stat().st_mode & 0o777 == 0o600
    assert files.directory.stat().st_mode & 0o777 == 0o700


def test_a_file_is_replaced_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_file(path, b"one")
    write_file(path, b"two", 0o640)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("missing", ["key.pem", "cert.pem", "ca.pem"])
def test_a_missing_file_is_named(pki: Pki, missing: str) -> None:
    files = pki.issue("brain", "b")
    (files.directory / missing).unlink()
    assert not files.exists()
    with pytest.raises(BadInput, match=missing) as raised:
        channel_credentials(files)
    assert raised.value.reason is Reason.CONFIG_INVALID


@pytest.mark.parametrize("damaged", ["key.pem", "cert.pem", "ca.pem"])
def test_a_damaged_file_is_named(pki: Pki, damaged: str) -> None:
    files = pki.issue("brain", "b")
    write_file(files.directory / damaged, b"-----BEGIN NOTHING-----\n")
    with pytest.raises(BadInput, match=damaged):
        server_credentials(files)


def test_a_certificate_of_another_key_is_named(pki: Pki) -> None:
    files = pki.issue("brain", "b")
    write_file(files.key, key_pem(new_key()))
    with pytest.raises(BadInput, match=r"cert\.pem is not the certificate of .*key\.pem"):
        files.load()


def test_a_key_that_others_can_read_is_refused_with_what_to_do(pki: Pki) -> None:
    files = pki.issue("brain", "b")
    files.key.chmod(0o640)
    with pytest.raises(BadInput, match=r"0640.*chmod 600"):
        files.load()


def test_a_key_does_not_show_itself(pki: Pki) -> None:
    loaded = pki.issue("brain", "b").load()
    assert "PRIVATE" not in repr(loaded)


def test_an_expired_identity_is_refused_before_it_is_dialled_with(pki: Pki) -> None:
    past = NOW - timedelta(days=2)
    files = pki.issue("brain", "b", not_before=past, not_after=past + timedelta(hours=24))
    with pytest.raises(Denied, match="expired at") as raised:
        channel_credentials(files)
    assert raised.value.reason is Reason.CERTIFICATE_EXPIRED
    assert str(files.certificate) in str(raised.value)
    assert files.load().identity.name == "b"  # to renew it, it can still be read


def test_an_identity_of_the_future_points_at_the_clock(pki: Pki) -> None:
    files = pki.issue("brain", "b", not_before=NOW + timedelta(hours=1))
    with pytest.raises(BadInput, match="clock"):
        server_credentials(files)


def test_a_candidate_changes_nothing_until_it_is_promoted(pki: Pki) -> None:
    files = pki.issue("brain", "b")
    next_one = pki.issue("brain", "b", directory=pki.root / "next").load()
    before = files.load().key_pem
    candidate = files.stage(next_one.key_pem, next_one.chain, next_one.ca)
    assert files.load().key_pem == before
    assert candidate.load_valid().identity == next_one.identity
    files.promote()
    assert files.load().identity == next_one.identity
    assert names(files.directory) == ["ca.pem", "cert.pem", "key.pem"]


@pytest.mark.parametrize("files_written", [1, 2, 3])
def test_a_promotion_cut_short_is_finished_or_has_not_begun(pki: Pki, files_written: int) -> None:
    files = pki.issue("brain", "b")
    old = files.load()
    new = pki.issue("brain", "b", directory=pki.root / "next").load()
    candidate = files.stage(new.key_pem, new.chain, new.ca)
    for source, target in [
        (candidate.ca, files.ca),
        (candidate.key, files.key),
        (candidate.certificate, files.certificate),
    ][:files_written]:
        write_file(target, source.read_bytes())
    assert files.load().identity in (old.identity, new.identity)
    assert files.load().identity == (old.identity if files_written == 1 else new.identity)


@pytest.mark.parametrize("files_written", [0, 1, 2, 3])
def test_a_first_promotion_cut_short_is_finished(pki: Pki, files_written: int) -> None:
    new = pki.issue("brain", "b").load()
    files = IdentityFiles(pki.root / "first")
    candidate = files.stage(new.key_pem, new.chain, new.ca)
    for source, target in [
        (candidate.ca, files.ca),
        (candidate.key, files.key),
        (candidate.certificate, files.certificate),
    ][:files_written]:
        write_file(target, source.read_bytes())
    assert files.load().identity == new.identity


async def test_a_server_shows_a_rotated_certificate_at_the_next_handshake(pki: Pki) -> None:
    files = pki.issue("brain", "b")
    async with health_server(files) as address:
        first = shown(address)
        assert shown(address) == first
        pki.issue("brain", "b")
        second = shown(address)
        assert second != first
        # Half-written or damaged files leave what was there.
        write_file(files.certificate, b"damaged")
        assert shown(address) == second


async def test_a_client_of_another_ca_does_not_get_in(pki: Pki, tmp_path: Path) -> None:
    stranger = Pki(tmp_path / "other").issue("operator", "eve")
    trusting = pki.issue("operator", "ann")
    write_file(stranger.ca, trusting.ca.read_bytes())
    async with health_server(pki.issue("brain", "b")) as address:
        await check(address, Role.BRAIN, trusting)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await check(address, Role.BRAIN, stranger)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_does_not_speak_to_another_role(pki: Pki) -> None:
    async with health_server(pki.issue("daemon", "d1")) as address:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await check(address, Role.BRAIN, pki.issue("operator", "ann"))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_signed_bytes_name_their_signer(pki: Pki, tmp_path: Path) -> None:
    sessiond = pki.issue("sessiond", "s").load()
    ticket = signed.sign(sessiond.key, sessiond.chain, b"ticket")
    assert signed.verify(ticket, pki.ca_pem, Role.SESSIOND, datetime.now(UTC)).name == "s"
    other = types_pb2.SignedBytes()
    other.CopyFrom(ticket)
    other.payload = b"another"
    for bytes_, ca, role in [
        (ticket, pki.ca_pem, Role.VAULT),
        (ticket, Pki(tmp_path / "x").ca_pem, Role.SESSIOND),
        (other, pki.ca_pem, Role.SESSIOND),
        (types_pb2.SignedBytes(payload=b"ticket"), pki.ca_pem, Role.SESSIOND),
    ]:
        with pytest.raises(CarpalError) as raised:
            signed.verify(bytes_, ca, role, NOW)
        assert raised.value.reason is Reason.IDENTITY_INVALID


@asynccontextmanager
async def health_server(files: IdentityFiles) -> AsyncIterator[str]:
    async with serve("127.0.0.1:0", server_credentials(files), lambda server: None) as server:
        yield server.address


async def check(address: str, role: Role, files: IdentityFiles) -> None:
    async with dial(address, role, files, retry=False) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shown(address: str) -> str:
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=10)
