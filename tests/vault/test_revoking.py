"""What is revoked stays so, is not renewed, and is nobody's business in another workspace."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from carpal.client import rpc_errors
from carpal.errors import Denied, NotFound
from carpal.identity import Identity, Role, identity_of
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import vault_pb2 as pb
from carpal.v1 import vault_pb2_grpc
from tests.trust import Clock, Trust, trust
from tests.vault.safes import store_in
from tests.vault.test_service import TIMEOUT, by_key, by_token, new_request, sign
from vault import setup
from vault.authority.ca import LEAF_LIFETIME, Claims
from vault.authority.revoking import Revoker
from vault.authority.signing import Signer
from vault.files import VaultFiles
from vault.opened import opened
from vault.safe.safe import Safe
from vault.store.store import Store


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


@pytest.fixture
def daemon(domain: Trust) -> IdentityFiles:
    return domain.issue(Claims(Role.DAEMON, "d", "default"))


def uri(role: str, name: str) -> str:
    return f"spiffe://carpal.internal/{role}/{name}"


async def revoke(stub: "vault_pb2_grpc.VaultAsyncStub", who: str, reason: str = "") -> None:
    with rpc_errors("the vault"):
        request = pb.RevokeIdentityRequest(identity=who, reason=reason)
        await stub.RevokeIdentity(request, timeout=TIMEOUT)


async def listed(stub: "vault_pb2_grpc.VaultAsyncStub") -> pb.RevocationList:
    answer = await stub.GetTrust(pb.GetTrustRequest(), timeout=TIMEOUT)
    return pb.RevocationList.FromString(answer.revocations.payload)


async def test_a_revocation_is_in_the_list_and_again_raises_its_version(
    operator: "vault_pb2_grpc.VaultAsyncStub", daemon: IdentityFiles
) -> None:
    empty = await listed(operator)
    await revoke(operator, uri("daemon", "d"), "sold\nto a   stranger")
    first = await listed(operator)
    (row,) = first.revocations
    assert (row.identity, row.reason) == (uri("daemon", "d"), "sold to a stranger")
    await revoke(operator, uri("daemon", "d"))
    second = await listed(operator)
    assert empty.version < first.version < second.version
    assert len(second.revocations) == 1


async def test_a_revoked_identity_is_not_renewed_but_enrols_anew_with_a_new_token_only(
    domain: Trust,
    operator: "vault_pb2_grpc.VaultAsyncStub",
    brain: "vault_pb2_grpc.VaultAsyncStub",
    daemon: IdentityFiles,
) -> None:
    lying_around = await domain.token("d")
    again = by_key(daemon, new_request())
    assert (await sign(brain, again)).certificate_chain
    await revoke(operator, uri("daemon", "d"))
    for refused in (again, by_key(daemon, new_request())):
        with pytest.raises(Denied) as raised:
            await sign(brain, refused)
        assert raised.value.reason is Reason.RENEWAL_REFUSED
    with pytest.raises(Denied) as raised:
        await sign(brain, by_token(lying_around, new_request()))
    assert raised.value.reason is Reason.TOKEN_REFUSED
    answer = await sign(brain, by_token(await domain.token("d"), new_request()))
    (row,) = (await listed(operator)).revocations
    # Also in the very second of the revocation.
    assert identity_of(answer.certificate_chain).issued > row.before.ToDatetime(
        identity_of(answer.certificate_chain).issued.tzinfo
    )


async def test_an_operator_revokes_in_its_own_workspace_only_and_no_server(
    domain: Trust, operator: "vault_pb2_grpc.VaultAsyncStub", daemon: IdentityFiles
) -> None:
    domain.issue(Claims(Role.DAEMON, "theirs", "other"))
    eve = await domain.vault(domain.issue(Claims(Role.OPERATOR, "eve", "other")))
    for stub, who in (
        (operator, uri("daemon", "theirs")),
        (operator, uri("operator", "eve")),
        (operator, uri("daemon", "nobody")),
        (operator, uri("brain", "brain-1")),
        (operator, uri("vault", "vault")),
        (operator, ""),
        (operator, "spiffe://elsewhere/daemon/d"),
        (eve, uri("daemon", "d")),
    ):
        with pytest.raises(NotFound) as raised:
            await revoke(stub, who)
        assert raised.value.reason is Reason.IDENTITY_NOT_FOUND
    assert not (await listed(operator)).revocations


async def test_a_brain_cannot_revoke_a_daemon_that_did_not_ask_for_it(
    brain: "vault_pb2_grpc.VaultAsyncStub", daemon: IdentityFiles
) -> None:
    with pytest.raises(Denied) as raised:
        await revoke(brain, uri("daemon", "d"))
    assert raised.value.reason is Reason.RENEWAL_REFUSED
    assert not (await listed(brain)).revocations


async def test_the_vault_itself_refuses_whom_it_revoked(
    domain: Trust, operator: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    eve = await domain.vault(domain.issue(Claims(Role.OPERATOR, "eve", "default")))
    assert not (await listed(eve)).revocations
    await revoke(operator, uri("operator", "eve"))
    with pytest.raises(Denied) as raised, rpc_errors("the vault"):
        await listed(eve)
    assert raised.value.reason is Reason.IDENTITY_REVOKED


async def test_by_command_a_brain_is_revoked_while_the_vault_serves(
    domain: Trust, operator: "vault_pb2_grpc.VaultAsyncStub"
) -> None:
    with pytest.raises(NotFound):
        setup.revoke(domain.files, Role.BRAIN, "brain-9", "", domain.clock)
    setup.revoke(domain.files, Role.BRAIN, "brain-1", "taken over", domain.clock)
    (row,) = (await listed(operator)).revocations
    assert (row.identity, row.reason) == (uri("brain", "brain-1"), "taken over")


async def test_what_has_expired_leaves_the_list_and_is_still_not_renewed(
    domain: Trust,
    operator: "vault_pb2_grpc.VaultAsyncStub",
    brain: "vault_pb2_grpc.VaultAsyncStub",
    daemon: IdentityFiles,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await revoke(operator, uri("daemon", "d"))
    version = (await listed(operator)).version
    domain.clock.offset = 2 * LEAF_LIFETIME + timedelta(minutes=1)
    after = await listed(operator)
    assert (after.version, list(after.revocations)) == (version, [])
    assert not domain.service.door.parts.revoker._signatures, (
        "they are kept as long as they are listed"
    )
    with caplog.at_level(logging.WARNING), pytest.raises(Denied):
        await sign(brain, by_key(daemon, new_request()))
    assert "revoked" in {getattr(record, "why", None) for record in caplog.records}


def test_a_list_has_a_higher_version_whatever_the_clock_says(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.revoke("x", 5, 5000, "why", "me")
        assert store.revocations_version() == 5000
        store.revoke("y", 4, 4000, "why", "me")
        assert store.revocations_version() == 5001
        store.check_witnesses()


class Meanwhile(Store):
    """One before whose turn to write comes that of another process."""

    def __init__(self, safe: Safe, other: Callable[[], object]) -> None:
        super().__init__(safe)
        self._other = [other]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        while self._other:
            self._other.pop()()
        with super().transaction():
            yield


@pytest.fixture
def files(tmp_path: Path) -> VaultFiles:
    files = VaultFiles(tmp_path / "state")
    setup.init(files, "carpal.internal", [Claims(Role.BRAIN, "brain-1")], Clock())
    return files


def renewed(signer: Signer, files: VaultFiles, daemon: IdentityFiles) -> Identity:
    """The daemon's next, by its key, through the brain."""
    brain = files.identity(Role.BRAIN, "brain-1").identity()
    asked = by_key(daemon, new_request())
    old = asked.renewal
    made = signer.renew(brain, asked.certificate_request, old.certificate, old.signature)
    return identity_of(made.chain)


def test_an_identity_that_is_revoked_while_its_renewal_waits_is_not_renewed(
    files: VaultFiles,
) -> None:
    clock = Clock()
    daemon = IdentityFiles(files.state / "d")
    setup.issue(files, Claims(Role.DAEMON, "d", "default"), daemon, clock)
    with opened(files) as it:
        store = Meanwhile(it.safe, lambda: setup.revoke(files, Role.DAEMON, "d", "", clock))
        with pytest.raises(Denied) as raised:
            renewed(Signer(it.authorities, store, clock), files, daemon)
        assert raised.value.reason is Reason.RENEWAL_REFUSED


def test_what_is_issued_while_a_revocation_waits_is_revoked_too(files: VaultFiles) -> None:
    clock, made = Clock(), []
    daemon = IdentityFiles(files.state / "d")
    setup.issue(files, Claims(Role.DAEMON, "d", "default"), daemon, clock)
    with opened(files) as it:
        signer = Signer(it.authorities, it.store, clock)

        def later() -> None:
            clock.offset += timedelta(seconds=2)
            made.append(renewed(signer, files, daemon))

        Revoker(signer, Meanwhile(it.safe, later), clock).by_command(Role.DAEMON, "d", "stolen")
        assert [signer.is_revoked(each) for each in made] == [True]
