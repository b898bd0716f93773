"""The enrolment port relays what the vault says, and no more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from brain.enrollment import EnrollmentService
from carpal.client import dial, rpc_errors
from carpal.errors import BadInput, Denied, NotBuilt, Unreachable
from carpal.identity import Role, identity_of, server_name
from carpal.proof import Token, enrol_proof
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, certificate_request, new_key, server_credentials
from carpal.v1 import enrollment_pb2 as pb
from carpal.v1 import enrollment_pb2_grpc, vault_pb2_grpc
from tests.pki import Pki
from tests.trust import BRAINS, Trust, trust

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
    ca = domain.files.load_authority().pem
    async with port(domain.enrollment_address, ca) as stub:
        answer = await stub.Enroll(enrol(token, certificate_request(new_key())), timeout=TIMEOUT)
    assert identity_of(answer.certificate_chain).name == "build-1"
    assert tuple(answer.brains) == BRAINS
    assert answer.ca_bundle == ca
    assert answer.HasField("server_time")


async def test_what_the_vault_refuses_is_said_in_its_words(domain: Trust) -> None:
    token = await domain.token()
    async with port(domain.enrollment_address, domain.files.load_authority().pem) as stub:
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


async def test_what_is_not_built_says_so(domain: Trust) -> None:
    async with port(domain.enrollment_address, domain.files.load_authority().pem) as stub:
        with pytest.raises(NotBuilt), rpc_errors("the brain"):
            await stub.Diagnose(pb.DiagnoseRequest(), timeout=TIMEOUT)
        with pytest.raises(NotBuilt), rpc_errors("the brain"):
            await stub.Retire(pb.RetireRequest(), timeout=TIMEOUT)


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
    operator = domain.identity(Role.OPERATOR, "operator")
    ca = domain.files.load_authority().pem
    serving = domain.identity(Role.BRAIN, "brain-1")
    async with relay(operator, domain.vault_address, serving) as address, port(address, ca) as stub:
        with pytest.raises(Unreachable) as raised, rpc_errors("the brain"):
            await stub.Enroll(pb.EnrollRequest(token_id="t"), timeout=TIMEOUT)
    assert raised.value.reason is Reason.VAULT_UNAVAILABLE


@asynccontextmanager
async def relay(
    calling: IdentityFiles, vault: str, serving: IdentityFiles | None = None
) -> AsyncIterator[str]:
    async with dial(vault, Role.VAULT, calling, retry=False) as channel:
        service = EnrollmentService(vault_pb2_grpc.VaultStub(channel), list)
        async with serve(
            "127.0.0.1:0",
            server_credentials(serving or calling, require_client=False),
            lambda server: enrollment_pb2_grpc.add_EnrollmentServicer_to_server(service, server),
            authorize=False,
        ) as server:
            yield server.address
