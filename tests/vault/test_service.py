"""The vault over real mutual TLS: who may ask it, and what it answers."""

import asyncio
import base64
import logging
import secrets
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration

from carpal import __version__, signed
from carpal.client import rpc_errors
from carpal.errors import BadInput, CarpalError, Denied
from carpal.identity import Role, identity_of
from carpal.proof import Token, ca_pin, enrol_proof, renewal_signature
from carpal.status import Reason
from carpal.tls import IdentityFiles, certificate_request, new_key
from carpal.v1 import vault_pb2 as pb
from carpal.v1 import vault_pb2_grpc
from carpal.v1.types_pb2 import ChainHead
from tests.trust import Trust, trust
from tests.vault.audit.desk import lines
from vault.authority.ca import Claims
from vault.authority.signing import RENEW_GRACE
from vault.opened import authority_of
from vault.seal.keyring import TERM_DAYS

TIMEOUT = 10


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "state") as served:
        yield served


@pytest.fixture
async def operator(domain: Trust) -> "vault_pb2_grpc.VaultAsyncStub":
    return await domain.vault()


@pytest.fixture
async def brain(domain: Trust) -> "vault_pb2_grpc.VaultAsyncStub":
    return await domain.vault(domain.identity(Role.BRAIN, "brain-1"))


def create(**changes: object) -> pb.CreateTokenRequest:
    values: dict[str, object] = {"token_id": "tok_1", "secret": bytes(32), "name": "build-1"}
    return pb.CreateTokenRequest(**{**values, **changes})  # type: ignore[arg-type]


def by_token(token: Token, csr: bytes, secret: bytes | None = None) -> pb.SignRequest:
    proof = enrol_proof(secret or token.secret, token.token_id, csr)
    return pb.SignRequest(
        certificate_request=csr, token=pb.TokenProof(token_id=token.token_id, hmac=proof)
    )


def by_key(files: IdentityFiles, csr: bytes) -> pb.SignRequest:
    old = files.load()
    return pb.SignRequest(
        certificate_request=csr,
        renewal=pb.RenewalProof(certificate=old.chain, signature=renewal_signature(old.key, csr)),
    )


async def sign(stub: "vault_pb2_grpc.VaultAsyncStub", request: pb.SignRequest) -> pb.SignResponse:
    with rpc_errors("the vault"):
        return await stub.Sign(request, timeout=TIMEOUT)


def new_request() -> bytes:
    return certificate_request(new_key())


async def test_status_is_true(domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub") -> None:
    status = await brain.GetStatus(pb.GetStatusRequest(), timeout=TIMEOUT)
    head = domain.service.door.parts.reader.head()
    assert status == pb.GetStatusResponse(
        version=__version__,
        trust_domain="carpal.internal",
        seal="file",
        term=1,
        audit_head=ChainHead(position=head.number, hash=bytes.fromhex(head.hash)),
    )
    assert head.number > 0


async def test_status_is_answered_while_the_store_is_at_work(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    database = domain.service.door.parts.opened.safe.database
    began, asked = threading.Event(), threading.Event()

    def busy(*_: object) -> int:
        began.set()
        return int(asked.wait(TIMEOUT))

    database._db.create_scalar_function("busy", busy, 0)
    working = asyncio.create_task(
        domain.service._do(lambda: database.execute("SELECT busy() FROM seal"))
    )
    await asyncio.to_thread(began.wait, TIMEOUT)
    try:
        status = await brain.GetStatus(pb.GetStatusRequest(), timeout=TIMEOUT)
    finally:
        asked.set()
    assert (status.seal, await working) == ("file", [(1,)])


async def test_terms_are_replaced_after_ninety_days_without_a_restart(domain: Trust) -> None:
    service = domain.service
    safe = service.door.parts.opened.safe
    await service._do(service.door.rotate_if_due)
    assert safe.term == 1
    domain.clock.offset = timedelta(days=TERM_DAYS, seconds=1)
    rotating = asyncio.create_task(service.rotate())
    await asyncio.sleep(0)  # it begins; its work comes before ours, in the store's one thread
    assert await service._do(lambda: safe.term) == 2
    await service._do(service.door.rotate_if_due)
    assert safe.term == 2, "and not again"
    rotating.cancel()


async def test_trust_is_the_ca_and_a_signed_empty_list(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    answer = await brain.GetTrust(pb.GetTrustRequest(), timeout=TIMEOUT)
    signed.verify_by_ca(answer.revocations, answer.ca_bundle)
    told = pb.RevocationList.FromString(answer.revocations.payload)
    assert (told.version, list(told.revocations)) == (1, [])


async def test_a_token_buys_one_certificate_with_its_claims(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    token = await domain.token("build-7", pool="gpu")
    key = new_key()
    answer = await sign(brain, by_token(token, certificate_request(key)))
    identity = identity_of(answer.certificate_chain)
    assert identity.uri == "spiffe://carpal.internal/daemon/build-7"
    assert (identity.workspace, identity.pool) == ("default", "gpu")
    assert timedelta(hours=11) < answer.renew_after.ToTimedelta() <= timedelta(hours=12)
    assert token.pins == (ca_pin(authority_of(domain.files).der),)


async def test_the_same_request_again_is_the_first_answer(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    request = by_token(await domain.token(), new_request())
    first = await sign(brain, request)
    assert (await sign(brain, request)).certificate_chain == first.certificate_chain


async def test_an_endless_token_id_does_not_fill_the_log(
    brain: "vault_pb2_grpc.VaultAsyncStub", caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Denied):
        await sign(brain, by_token(Token("x:1", (), "t" * 1_000_000, bytes(32)), new_request()))
    assert max(len(str(record.__dict__)) for record in caplog.records) < 10_000


async def test_a_refused_token_does_not_say_why(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub", caplog: pytest.LogCaptureFixture
) -> None:
    used, revoked = await domain.token("a"), await domain.token("b")
    expired = await domain.token("c", ttl=timedelta(minutes=1))
    good = await domain.token("d")
    used_csr = new_request()
    await sign(brain, by_token(used, used_csr))
    operator = await domain.vault()
    await operator.RevokeToken(pb.RevokeTokenRequest(token_id=revoked.token_id), timeout=TIMEOUT)
    domain.clock.offset = timedelta(minutes=2)
    refused = {
        "unknown": by_token(Token("x:1", (), "tok_unknown", bytes(32)), new_request()),
        "used": by_token(used, new_request()),
        "used, other proof": by_token(used, used_csr, secret=bytes(32)),
        "revoked": by_token(revoked, new_request()),
        "expired": by_token(expired, new_request()),
        "wrong proof": by_token(good, new_request(), secret=bytes(32)),
        "proof of no bytes": pb.SignRequest(
            certificate_request=new_request(), token=pb.TokenProof(token_id=good.token_id)
        ),
    }
    said = set()
    with caplog.at_level(logging.INFO):
        for request in refused.values():
            with pytest.raises(Denied) as raised:
                await sign(brain, request)
            said.add((raised.value.reason, str(raised.value)))
    assert len(said) == 1
    assert said.pop()[0] is Reason.TOKEN_REFUSED
    reasons = {getattr(record, "why", None) for record in caplog.records}
    assert reasons >= {"unknown", "used", "revoked", "expired", "wrong proof"}
    # A wrong proof has not spent it.
    assert identity_of((await sign(brain, by_token(good, new_request()))).certificate_chain)


async def test_v15_a_token_that_is_used_twice_is_refused_and_the_audit_says_so(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub", caplog: pytest.LogCaptureFixture
) -> None:
    token = await domain.token("a")
    await sign(brain, by_token(token, new_request()))
    with caplog.at_level(logging.WARNING), pytest.raises(Denied):
        await sign(brain, by_token(token, new_request()))
    assert [record.levelname for record in caplog.records if record.message == "token refused"] == [
        "WARNING"
    ]
    domain.service.door.parts.audit.flush()
    said = [line for line in lines(domain.files.audit) if line["what"] == "denied"]
    assert [(line["token"], line["reason"]) for line in said] == [(token.token_id, "used")]
    signed_for = [
        line.get("identity") for line in lines(domain.files.audit)
        if line["what"] == "outcome" and line["action"] == "sign" and line["status"] == "ok"
    ]  # fmt: skip
    assert signed_for == ["spiffe://carpal.internal/daemon/a"]


async def test_a_used_tokens_answer_ends_with_its_life(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    request = by_token(await domain.token(ttl=timedelta(minutes=5)), new_request())
    await sign(brain, request)
    domain.clock.offset = timedelta(minutes=6)
    with pytest.raises(Denied):
        await sign(brain, request)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("token_id", {"token_id": ""}),
        ("token_id", {"token_id": "a b"}),
        ("secret", {"secret": b"short"}),
        ("name", {"name": "Build 1"}),
        ("pool", {"pool": "GPU"}),
        ("ttl", {"ttl": Duration(seconds=59)}),
        ("ttl", {"ttl": Duration(seconds=86_401)}),
        ("ttl", {"ttl": Duration(seconds=-1)}),
        ("ttl", {"ttl": Duration(seconds=315_576_000_000)}),
        ("ttl", {"ttl": Duration(seconds=10**15)}),
    ],
    ids=str,
)
async def test_a_bad_field_of_a_token_is_named(
    operator: "vault_pb2_grpc.VaultAsyncStub", field: str, changes: dict[str, object]
) -> None:
    with pytest.raises(BadInput) as raised, rpc_errors("the vault"):
        await operator.CreateToken(create(**changes), timeout=TIMEOUT)
    assert raised.value.fields["field"] == field


async def test_creating_a_token_again_is_the_first_answer_unless_it_differs(
    operator: "vault_pb2_grpc.VaultAsyncStub",
) -> None:
    first = await operator.CreateToken(create(), timeout=TIMEOUT)
    assert await operator.CreateToken(create(workspace="default"), timeout=TIMEOUT) == first
    for change in ({"secret": b"1" * 32}, {"name": "other"}, {"ttl": Duration(seconds=60)}):
        with pytest.raises(BadInput) as raised, rpc_errors("the vault"):
            await operator.CreateToken(create(**change), timeout=TIMEOUT)
        assert raised.value.reason is Reason.ID_REUSED


async def test_workspaces_do_not_see_or_touch_each_others_tokens(
    domain: Trust, operator: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    other = await domain.vault(domain.issue(Claims(Role.OPERATOR, "eve", "other")))
    await operator.CreateToken(create(), timeout=TIMEOUT)
    with pytest.raises(Denied) as raised, rpc_errors("the vault"):
        await other.CreateToken(create(token_id="t2", workspace="default"), timeout=TIMEOUT)
    assert raised.value.reason is Reason.ROLE_NOT_ALLOWED
    with pytest.raises(Denied), rpc_errors("the vault"):
        await other.ListTokens(pb.ListTokensRequest(workspace="default"), timeout=TIMEOUT)
    assert not (await other.ListTokens(pb.ListTokensRequest(), timeout=TIMEOUT)).tokens
    await other.RevokeToken(pb.RevokeTokenRequest(token_id="tok_1"), timeout=TIMEOUT)
    (mine,) = (await operator.ListTokens(pb.ListTokensRequest(), timeout=TIMEOUT)).tokens
    assert (mine.token_id, mine.name, mine.workspace) == ("tok_1", "build-1", "default")
    assert not mine.HasField("used")


async def test_a_daemons_name_belongs_to_one_workspace(
    domain: Trust,
    operator: "vault_pb2_grpc.VaultAsyncStub",
    brain: "vault_pb2_grpc.VaultAsyncStub",
) -> None:
    other = await domain.vault(domain.issue(Claims(Role.OPERATOR, "eve", "other")))
    token = await domain.token("build-1")
    with pytest.raises(BadInput, match="taken"), rpc_errors("the vault"):
        await other.CreateToken(create(token_id="t2"), timeout=TIMEOUT)
    await sign(brain, by_token(token, new_request()))
    with pytest.raises(BadInput, match="taken"), rpc_errors("the vault"):
        await other.CreateToken(create(token_id="t2"), timeout=TIMEOUT)
    # Its own workspace may enrol the machine anew.
    await operator.CreateToken(create(token_id="t3"), timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("claims", "method"),
    [
        (Claims(Role.BRAIN, "b"), "CreateToken"),
        (Claims(Role.BRAIN, "b"), "ListTokens"),
        (Claims(Role.SESSIOND, "s"), "RevokeToken"),
        (Claims(Role.DAEMON, "d", "default"), "Sign"),
        (Claims(Role.DAEMON, "d", "default"), "GetTrust"),
        (Claims(Role.DAEMON, "d", "default"), "GetStatus"),
    ],
    ids=str,
)
async def test_a_role_may_not_call_what_is_not_its_own(
    domain: Trust, claims: Claims, method: str
) -> None:
    stub = await domain.vault(domain.issue(claims))
    request = getattr(pb, f"{method}Request")()
    with pytest.raises(Denied) as raised, rpc_errors("the vault"):
        await getattr(stub, method)(request, timeout=TIMEOUT)
    assert raised.value.reason is Reason.ROLE_NOT_ALLOWED
    assert raised.value.exit_code == 4


async def test_a_brain_renews_for_a_daemon_and_all_claims_are_carried_over(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    files = domain.issue(Claims(Role.DAEMON, "build-1", "acme", "gpu"))
    request = by_key(files, new_request())
    answer = await sign(brain, request)
    identity = identity_of(answer.certificate_chain)
    assert (identity.uri, identity.workspace, identity.pool) == (
        files.identity().uri,
        "acme",
        "gpu",
    )
    assert (await sign(brain, request)).certificate_chain == answer.certificate_chain
    # And the new certificate renews in its turn, with the right key only.
    csr = new_request()
    proof = pb.RenewalProof(
        certificate=answer.certificate_chain,
        signature=renewal_signature(files.load().key, csr),
    )
    with pytest.raises(Denied) as raised:
        await sign(brain, pb.SignRequest(certificate_request=csr, renewal=proof))
    assert raised.value.reason is Reason.RENEWAL_REFUSED


async def test_servers_and_operators_renew_themselves_and_nobody_else(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    own = domain.identity(Role.BRAIN, "brain-1")
    assert (await sign(brain, by_key(own, new_request()))).certificate_chain
    sessiond = await domain.vault(domain.identity(Role.SESSIOND, "sessiond"))
    own = domain.identity(Role.SESSIOND, "sessiond")
    assert (await sign(sessiond, by_key(own, new_request()))).certificate_chain
    operator = await domain.vault()
    own = domain.identity(Role.OPERATOR, "operator")
    assert (await sign(operator, by_key(own, new_request()))).certificate_chain
    daemon = domain.issue(Claims(Role.DAEMON, "d", "default"))
    for stub, files in [
        (sessiond, daemon),
        (operator, daemon),
        (operator, domain.issue(Claims(Role.OPERATOR, "ann", "default"))),
        (operator, domain.identity(Role.BRAIN, "brain-1")),
        (sessiond, domain.identity(Role.BRAIN, "brain-1")),
        (brain, domain.identity(Role.SESSIOND, "sessiond")),
        (brain, domain.identity(Role.OPERATOR, "operator")),
        (brain, domain.identity(Role.VAULT, "vault")),
        (brain, domain.issue(Claims(Role.BRAIN, "brain-2"))),
    ]:
        with pytest.raises(Denied) as raised:
            await sign(stub, by_key(files, new_request()))
        assert raised.value.reason is Reason.RENEWAL_REFUSED


async def test_an_expired_certificate_renews_for_a_month_and_no_longer(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    files = domain.issue(Claims(Role.DAEMON, "d", "default"))
    domain.clock.offset = timedelta(hours=24) + RENEW_GRACE - timedelta(minutes=5)
    assert (await sign(brain, by_key(files, new_request()))).certificate_chain
    domain.clock.offset += timedelta(minutes=10)
    with pytest.raises(Denied) as raised:
        await sign(brain, by_key(files, new_request()))
    assert raised.value.reason is Reason.RENEWAL_REFUSED


@pytest.mark.parametrize("certificate", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAA\n"])
async def test_a_renewal_without_a_certificate_is_refused(
    brain: "vault_pb2_grpc.VaultAsyncStub", certificate: bytes
) -> None:
    request = pb.SignRequest(
        certificate_request=new_request(),
        renewal=pb.RenewalProof(certificate=certificate, signature=b"x"),
    )
    with pytest.raises(Denied) as raised:
        await sign(brain, request)
    assert raised.value.reason is Reason.RENEWAL_REFUSED


async def test_a_renewal_with_a_certificate_of_an_unknown_version_is_refused(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    files = domain.issue(Claims(Role.DAEMON, "d", "default"))
    der = base64.b64decode(b"".join(files.load().chain.split(b"-----")[2].split()))
    changed = base64.encodebytes(der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05", 1))
    certificate = b"-----BEGIN CERTIFICATE-----\n" + changed + b"-----END CERTIFICATE-----\n"
    request = pb.SignRequest(
        certificate_request=new_request(),
        renewal=pb.RenewalProof(certificate=certificate, signature=b"x"),
    )
    with pytest.raises(Denied) as raised:
        await sign(brain, request)
    assert raised.value.reason is Reason.RENEWAL_REFUSED


async def test_a_request_without_a_proof_is_an_invalid_field(
    brain: "vault_pb2_grpc.VaultAsyncStub",
) -> None:
    with pytest.raises(BadInput, match="proof"):
        await sign(brain, pb.SignRequest(certificate_request=new_request()))


async def test_no_secret_is_in_a_log_or_an_error(
    domain: Trust, brain: "vault_pb2_grpc.VaultAsyncStub", caplog: pytest.LogCaptureFixture
) -> None:
    canary = secrets.token_bytes(32)
    operator = await domain.vault()
    said = []
    with caplog.at_level(logging.DEBUG):
        await operator.CreateToken(create(secret=canary), timeout=TIMEOUT)
        for change in ({"name": "Bad"}, {"name": "other"}, {"secret": canary + b"long"}):
            try:
                with rpc_errors("the vault"):
                    await operator.CreateToken(
                        create(**{"secret": canary, **change}), timeout=TIMEOUT
                    )
            except CarpalError as error:
                said.append(f"{error!r} {error} {error.fields}")
        token = Token(domain.enrollment_address, (), "tok_1", canary)
        await sign(brain, by_token(token, new_request()))
        listed = await operator.ListTokens(pb.ListTokensRequest(), timeout=TIMEOUT)
    assert len(said) == 3
    logged = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    everything = logged + "".join(said) + repr(token) + str(listed)
    for form in (canary.hex(), repr(canary), repr(canary)[2:-1], str(list(canary))):
        assert form not in everything
    assert canary not in listed.SerializeToString()
