"""The enrolment port relays what the vault says, and no more."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from brain.daemons.gate import refused
from brain.enrollment import EnrollmentService
from carpal.client import dial, rpc_errors
from carpal.errors import BadInput, CarpalError, Denied, Unreachable, refuse
from carpal.identity import Identity, Role, identity_of, server_name
from carpal.proof import (
    Token,
    diagnosis_signature,
    enrol_proof,
    renewal_signature,
    retirement_signature,
)
from carpal.revocations import Revocations
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, certificate_request, new_key, server_credentials
from carpal.v1 import enrollment_pb2 as pb
from carpal.v1 import enrollment_pb2_grpc, vault_pb2_grpc
from carpal.v1.vault_pb2 import RevokeIdentityRequest
from hands.leaving import diagnose
from tests.pki import Pki
from tests.trust import BRAINS, Trust, trust
from vault.authority.ca import Claims
from vault.opened import authority_of

TIMEOUT = 10


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "state") as served:
        yield served


@asynccontextmanager
async def port(address: str, ca: bytes) -> AsyncIterator["enrollment_pb2_grpc.EnrollmentAsyncStub"]:
    """The enrolment port, dialled without a certificate."""
    name = server_name(Role.BRAIN, "carpal.internal")
    async with grpc.aio.secure_channel(
        address,
        grpc.ssl_channel_credentials(ca),
        options=[("grpc.ssl_target_name_override", name)],
    ) as channel:
        yield enrollment_pb2_grpc.EnrollmentStub(channel)


def enrol(token: Token, csr: bytes, secret: bytes | None = None) -> pb.EnrollRequest:
    return pb.EnrollRequest(
        token_id=token.token_id,
        certificate_request=csr,
        proof=enrol_proof(secret or token.secret, token.token_id, csr),
    )


async def test_a_machine_without_a_certificate_enrols_and_learns_where_to_dial(
    domain: Trust,
) -> None:
    token = await domain.token("build-1")
    ca = authority_of(domain.files).pem
    async with port(domain.enrollment_address, ca) as stub:
        answer = await stub.Enroll(enrol(token, certificate_request(new_key())), timeout=TIMEOUT)
    assert identity_of(answer.certificate_chain).name == "build-1"
    assert tuple(answer.brains) == BRAINS
    assert answer.ca_bundle == ca
    assert answer.HasField("server_time")


async def test_what_the_vault_refuses_is_said_in_its_words(domain: Trust) -> None:
    token = await domain.token()
    async with port(domain.enrollment_address, authority_of(domain.files).pem) as stub:
        with pytest.raises(Denied) as raised, rpc_errors("the brain"):
            await stub.Enroll(
                enrol(token, certificate_request(new_key()), bytes(32)), timeout=TIMEOUT
            )
        assert raised.value.reason is Reason.TOKEN_REFUSED
        with pytest.raises(BadInput) as bad, rpc_errors("the brain"):
            await stub.Enroll(enrol(token, b"junk"), timeout=TIMEOUT)
        assert bad.value.fields["field"] == "certificate_request"
        request = pb.RenewRequest(certificate_request=certificate_request(new_key()))
        with pytest.raises(Denied) as renewal, rpc_errors("the brain"):
            await stub.Renew(request, timeout=TIMEOUT)
        assert renewal.value.reason is Reason.RENEWAL_REFUSED


async def ask(domain: Trust, files: IdentityFiles) -> pb.DiagnoseResponse:
    """Why a certificate is refused."""
    loaded = files.load()
    nonce = secrets.token_bytes(32)
    proof = diagnosis_signature(loaded.key, der(loaded.chain), nonce)
    async with port(domain.enrollment_address, authority_of(domain.files).pem) as stub:
        with rpc_errors("the brain"):
            return await stub.Diagnose(
                pb.DiagnoseRequest(certificate=loaded.chain, nonce=nonce, proof=proof),
                timeout=TIMEOUT,
            )


def retirement(files: IdentityFiles) -> pb.RetireRequest:
    """A daemon's wish to be revoked."""
    loaded, nonce = files.load(), secrets.token_bytes(32)
    proof = retirement_signature(loaded.key, der(loaded.chain), nonce)
    return pb.RetireRequest(certificate=loaded.chain, nonce=nonce, proof=proof)


def der(chain: bytes) -> bytes:
    return x509.load_pem_x509_certificate(chain).public_bytes(serialization.Encoding.DER)


async def test_a_certificates_holder_is_told_why_it_is_refused(
    domain: Trust, tmp_path: Path
) -> None:
    """What TLS never says: expired, too early, of another authority, revoked."""
    now, day = datetime.now(UTC), timedelta(days=1)
    own = Pki(tmp_path / "own")
    own.authority = authority_of(domain.files)
    foreign = Pki(tmp_path / "foreign")
    old, end = now - timedelta(minutes=4), now - timedelta(minutes=1)
    revoked = own.issue("daemon", "gone")
    operator = await domain.vault()
    uri = (await enrolled(domain, "gone")).uri
    await operator.RevokeIdentity(RevokeIdentityRequest(identity=uri, reason="sold"))
    for files, verdict, says in (
        (own.issue("daemon", "a"), "ok", "is good"),
        (own.issue("daemon", "b", not_before=old, not_after=end),
         "CERTIFICATE_EXPIRED", "and here it is"),
        (own.issue("daemon", "c", not_before=now + day, not_after=now + 2 * day),
         "CERTIFICATE_EXPIRED", "valid from"),
        (foreign.issue("daemon", "d"), "IDENTITY_INVALID", "by no authority that is trusted"),
        (foreign.issue("daemon", "e", not_before=old, not_after=end),
         "IDENTITY_INVALID", "by no authority that is trusted"),
        (revoked, "IDENTITY_REVOKED", "sold"),
    ):  # fmt: skip
        found = await ask(domain, files)
        assert (found.verdict, says in found.detail) == (verdict, True), found
        assert bool(found.action) == (verdict != "ok")
        assert "validation failed" not in found.detail, "nor a library's words"
        assert found.HasField("server_time")


async def test_a_good_certificate_of_a_quarantined_daemon_is_told_of_the_quarantine(
    domain: Trust, tmp_path: Path
) -> None:
    """Else `ok` is all that a clone hears, and it may not link."""
    own = Pki(tmp_path / "own")
    own.authority = authority_of(domain.files)
    brain = domain.identity(Role.BRAIN, "brain-1")
    broken = refuse(Reason.UNREACHABLE, "sessiond does not answer")

    async def word(name: str, workspace: str) -> CarpalError | None:
        if name == "unknown":
            raise broken
        return refused(name, "a copied machine") if (name, workspace) == ("b", "default") else None

    vault = await domain.vault(brain)
    service = EnrollmentService(vault, list, brain, Revocations(), word)
    async with serve(
        "127.0.0.1:0",
        server_credentials(brain, require_client=False),
        lambda server: enrollment_pb2_grpc.add_EnrollmentServicer_to_server(service, server),
        authorize=False,
    ) as server:
        told = {}
        for name in ("a", "b", "unknown"):
            directory = own.issue("daemon", name).directory
            told[name] = await diagnose(directory, server.address)
    assert {found.verdict for found in told.values()} == {"ok"}
    assert told["a"].detail == told["unknown"].detail == "the certificate is good"
    assert "quarantined: a copied machine" in told["b"].detail
    assert "carpal fleet quarantine b --lift" in told["b"].action


async def test_who_does_not_hold_the_key_is_told_nothing_and_retires_nothing(
    domain: Trust,
) -> None:
    files = domain.issue(Claims(Role.DAEMON, "d", "default"))
    good, loaded = retirement(files), files.load()
    for_the_other = diagnosis_signature(loaded.key, der(loaded.chain), good.nonce)
    short = retirement_signature(loaded.key, der(loaded.chain), b"short")
    operator = retirement(domain.identity(Role.OPERATOR, "operator"))
    async with port(domain.enrollment_address, authority_of(domain.files).pem) as stub:
        for ask in (
            stub.Diagnose(pb.DiagnoseRequest(certificate=loaded.chain, nonce=good.nonce)),
            stub.Diagnose(pb.DiagnoseRequest(certificate=b"junk", nonce=good.nonce)),
            stub.Diagnose(
                pb.DiagnoseRequest(certificate=good.certificate, nonce=good.nonce, proof=good.proof)
            ),
            stub.Retire(pb.RetireRequest(certificate=loaded.chain, nonce=good.nonce)),
            stub.Retire(
                pb.RetireRequest(certificate=loaded.chain, nonce=good.nonce, proof=for_the_other)
            ),
            stub.Retire(pb.RetireRequest(certificate=loaded.chain, nonce=b"short", proof=short)),
            stub.Retire(operator),
        ):
            with pytest.raises(Denied) as raised, rpc_errors("the brain"):
                await ask
            assert raised.value.reason is Reason.RENEWAL_REFUSED
    assert (await ask_verdict(domain, files)) == "ok"


async def test_a_daemon_that_retires_is_revoked_and_its_old_wish_does_not_touch_the_next(
    domain: Trust,
) -> None:
    files = domain.issue(Claims(Role.DAEMON, "d", "default"))
    wish = retirement(files)
    async with port(domain.enrollment_address, authority_of(domain.files).pem) as stub:
        await stub.Retire(wish, timeout=TIMEOUT)
        assert await ask_verdict(domain, files) == "IDENTITY_REVOKED"
        anew = domain.issue(Claims(Role.DAEMON, "d", "default"))
        assert await ask_verdict(domain, anew) == "ok"
        await stub.Retire(wish, timeout=TIMEOUT)  # sent again: by whom?
        assert await ask_verdict(domain, anew) == "ok"
        # Of the revoked identity nothing comes any more.
        loaded = domain.issue(Claims(Role.DAEMON, "e", "default")).load()
        files = IdentityFiles(files.directory.parent / "e")
        await stub.Retire(retirement(files), timeout=TIMEOUT)
        csr = certificate_request(new_key())
        renewal = pb.RenewRequest(
            certificate_request=csr,
            certificate=loaded.chain,
            proof=renewal_signature(loaded.key, csr),
        )
        with pytest.raises(Denied) as raised, rpc_errors("the brain"):
            await stub.Renew(renewal, timeout=TIMEOUT)
    assert raised.value.reason is Reason.RENEWAL_REFUSED


async def ask_verdict(domain: Trust, files: IdentityFiles) -> str:
    return (await ask(domain, files)).verdict


async def enrolled(domain: Trust, name: str) -> Identity:
    """A machine that enrolled."""
    async with port(domain.enrollment_address, authority_of(domain.files).pem) as stub:
        token = await domain.token(name)
        answer = await stub.Enroll(enrol(token, certificate_request(new_key())), timeout=TIMEOUT)
    return identity_of(answer.certificate_chain)


async def test_a_vault_that_is_gone_spends_no_token(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    brain = pki.issue("brain", "b")
    async with serve("127.0.0.1:0", server_credentials(brain), lambda server: None) as gone:
        nobody = gone.address
    with_nobody = relay(brain, nobody)
    async with with_nobody as address, port(address, pki.ca_pem) as stub:
        with pytest.raises(Unreachable) as raised, rpc_errors("the brain"):
            await stub.Enroll(pb.EnrollRequest(token_id="t"), timeout=TIMEOUT)
    assert raised.value.reason is Reason.VAULT_UNAVAILABLE


async def test_the_brains_own_trouble_with_the_vault_is_not_the_machines(domain: Trust) -> None:
    """A relay whose role may not call Sign says that the vault cannot sign."""
    daemon = domain.issue(Claims(Role.DAEMON, "d", "default"))
    ca = authority_of(domain.files).pem
    serving = domain.identity(Role.BRAIN, "brain-1")
    async with relay(daemon, domain.vault_address, serving) as address, port(address, ca) as stub:
        with pytest.raises(Unreachable) as raised, rpc_errors("the brain"):
            await stub.Enroll(pb.EnrollRequest(token_id="t"), timeout=TIMEOUT)
    assert raised.value.reason is Reason.VAULT_UNAVAILABLE


@asynccontextmanager
async def relay(
    calling: IdentityFiles, vault: str, serving: IdentityFiles | None = None
) -> AsyncIterator[str]:
    async with dial(vault, Role.VAULT, calling, retry=False) as channel:
        stub = vault_pb2_grpc.VaultStub(channel)
        service = EnrollmentService(stub, list, calling, Revocations())
        async with serve(
            "127.0.0.1:0",
            server_credentials(serving or calling, require_client=False),
            lambda server: enrollment_pb2_grpc.add_EnrollmentServicer_to_server(service, server),
            authorize=False,
        ) as server:
            yield server.address
