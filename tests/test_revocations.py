"""Who is revoked is refused, also in what is open; and the list is not to be forged."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from carpal import signed
from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError, from_status, to_status
from carpal.identity import Identity, Role
from carpal.proof import revocation_signature
from carpal.revocations import Revocations, is_server, proves
from carpal.server import Context, Server, not_built, serve
from carpal.status import Reason
from carpal.tls import server_credentials
from carpal.trust_watch import REVOCATIONS, following
from carpal.v1 import orchestrator_pb2 as orchestrator
from carpal.v1 import orchestrator_pb2_grpc, types_pb2, vault_pb2, vault_pb2_grpc
from tests.pace import AT_ONCE, SCALE
from tests.pki import Pki
from tests.test_server import Orchestrator, register
from tests.trust import trust
from vault.authority.ca import Claims

WAIT = 10.0 * SCALE
LATER = 1_800_000_000_000


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


def listed(
    pki: Pki, version: int, *uris: str, before: datetime | None = None
) -> types_pb2.SignedBytes:
    """A list as the vault signs it."""
    when = Timestamp()
    when.FromDatetime(before or datetime.now(UTC))
    told = vault_pb2.RevocationList(version=version, issued=when)
    for uri in uris:
        proof = revocation_signature(pki.authority.key, uri, when.seconds)
        told.revocations.add(identity=uri, before=when, reason="stolen", signature=proof)
    return signed.sign(pki.authority.key, pki.ca_pem, told.SerializeToString())


def is_refused(revocations: Revocations, identity: Identity) -> bool:
    try:
        revocations.check(identity)
    except CarpalError as error:
        return error.reason is Reason.IDENTITY_REVOKED and error.exit_code == 78
    return False


def test_what_was_issued_until_the_revocation_is_refused_and_what_comes_after_is_not(
    pki: Pki,
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    old = pki.issue(Role.DAEMON, "d").identity()
    other = pki.issue(Role.DAEMON, "e").identity()
    held = Revocations()
    assert not is_refused(held, old)
    assert held.take(listed(pki, 1, old.uri, before=old.issued), pki.ca_pem)
    assert is_refused(held, old)
    assert not is_refused(held, other)
    anew = pki.issue(Role.DAEMON, "d", not_before=old.not_before + timedelta(seconds=1)).identity()
    assert anew.issued > old.issued >= now - timedelta(seconds=1)
    assert not is_refused(held, anew)


def test_a_list_that_is_forged_foreign_or_older_is_not_taken_and_the_last_stays_in_force(
    pki: Pki, tmp_path: Path
) -> None:
    victim = pki.issue(Role.DAEMON, "d").identity()
    held = Revocations()
    held.take(listed(pki, 7, victim.uri), pki.ca_pem)
    good = listed(pki, 8)
    leaf = pki.issue(Role.VAULT, "vault").load()
    foreign = Pki(tmp_path / "foreign")
    changed = types_pb2.SignedBytes()
    changed.CopyFrom(good)
    changed.payload = listed(pki, 9).payload
    unsigned = types_pb2.SignedBytes(payload=good.payload, certificate_chain=pki.ca_pem)
    endless = signed.sign(pki.authority.key, pki.ca_pem, b"")
    refused = {
        "by another authority": listed(foreign, 8),
        "of another, with our certificate": types_pb2.SignedBytes(
            payload=good.payload,
            signature=listed(foreign, 8).signature,
            certificate_chain=pki.ca_pem,
        ),
        "by a leaf, the vault's own": signed.sign(leaf.key, leaf.chain, good.payload),
        "changed": changed,
        "unsigned": unsigned,
        "without a signer": types_pb2.SignedBytes(payload=good.payload, signature=good.signature),
        "older": listed(pki, 6),
        "without a version": endless,
        "a certificate, which the same key signed": types_pb2.SignedBytes(
            payload=pki.authority.certificate.tbs_certificate_bytes,
            signature=pki.authority.certificate.signature,
            certificate_chain=pki.ca_pem,
        ),
    }
    for what, told in refused.items():
        with pytest.raises(CarpalError) as caught:
            held.take(told, pki.ca_pem)
        assert caught.value.reason is Reason.IDENTITY_INVALID, what
        assert (held.version, is_refused(held, victim)) == (7, True), what
    assert not held.take(listed(pki, 7), pki.ca_pem), "the same again is no news"
    assert is_refused(held, victim)
    assert held.take(good, pki.ca_pem)
    assert not is_refused(held, victim)


def test_a_refusal_as_revoked_carries_the_authoritys_word_and_nothing_less_proves_it(
    pki: Pki, tmp_path: Path
) -> None:
    me, other = pki.issue(Role.DAEMON, "d").identity(), pki.issue(Role.DAEMON, "e").identity()
    held = Revocations()
    held.take(listed(pki, 1, me.uri), pki.ca_pem)
    with pytest.raises(CarpalError) as caught:
        held.check(me)
    told = from_status(to_status(caught.value))
    assert proves(told, me, pki.ca_pem)
    anew = pki.issue(Role.DAEMON, "d", not_before=datetime.now(UTC)).identity()
    assert not proves(told, anew, pki.ca_pem), "enrolled anew since"
    assert not proves(told, other, pki.ca_pem), "another's"
    assert not proves(told, me, Pki(tmp_path / "x").ca_pem), "by another authority"
    later = str(int(told.fields["before"]) + 1)
    for changed in ({"before": later}, {"before": "x"}, {"proof": "x"}, {"proof": ""}):
        told.fields = told.fields | changed
        assert not proves(told, me, pki.ca_pem), changed


def test_what_a_retired_authority_let_in_is_ended_and_what_an_unknown_one_signed_is_not(
    pki: Pki, tmp_path: Path
) -> None:
    """TLS let in whoever is connected; one that is unknown here may be the next."""
    following = Pki(tmp_path / "next")
    old, new = pki.issue(Role.DAEMON, "d").identity(), following.issue(Role.DAEMON, "d").identity()
    held, looks = Revocations(), list[int]()
    held.on_change(lambda: looks.append(1))
    for bundle in (pki.ca_pem, pki.ca_pem + following.ca_pem):
        held.trust(bundle)
        held.check(old)
        held.check(new)
    assert not looks
    for _ in range(2):
        held.trust(following.ca_pem)
        held.check(new)
        with pytest.raises(CarpalError, match="was retired") as caught:
            held.check(old)
        assert caught.value.reason is Reason.CERTIFICATE_ENDING, "to be opened again"
    assert len(looks) == 1


def test_daemons_are_told_of_servers_and_of_no_tenants_own(pki: Pki) -> None:
    held = Revocations()
    names = [pki.issue(role, "x").identity().uri for role in Role]
    held.take(listed(pki, 1, *names), pki.ca_pem)
    told = {row.identity for row in held.servers()}
    assert told == {pki.issue(role, "x").identity().uri for role in Role if not role.has_workspace}
    assert not any(is_server(uri) for uri in ("", "x", "spiffe://d", "spiffe://d/daemon/brain"))


@pytest.fixture
def revocations() -> Revocations:
    return Revocations()


@pytest.fixture
async def server(pki: Pki, revocations: Revocations) -> AsyncIterator[Server]:
    """A brain's port that goes by a list."""
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
    service = Orchestrator()
    async with serve(
        "127.0.0.1:0", credentials, lambda to: register(to, service), revocations=revocations
    ) as serving:
        yield serving


async def test_a_revoked_callers_open_stream_ends_and_its_connection_is_of_no_use(
    server: Server, pki: Pki, revocations: Revocations
) -> None:
    files, other = pki.issue(Role.OPERATOR, "ada"), pki.issue(Role.OPERATOR, "bob")
    async with (
        dial(server.address, Role.BRAIN, files) as channel,
        dial(server.address, Role.BRAIN, other) as others,
    ):
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        request = orchestrator.WatchRequest(session_id="s")
        streams = [stub.Watch(request, timeout=WAIT) for _ in range(3)]
        theirs = orchestrator_pb2_grpc.OrchestratorStub(others).Watch(request, timeout=WAIT)
        for stream in (*streams, theirs):
            assert isinstance(await stream.read(), orchestrator.WatchResponse)
        revocations.take(listed(pki, LATER, files.identity().uri), pki.ca_pem)
        async with asyncio.timeout(AT_ONCE):
            for stream in streams:
                with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                    await stream.read()
                assert caught.value.reason is Reason.IDENTITY_REVOKED
                assert "stolen" in str(caught.value)
        with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
            await stub.Wake(orchestrator.WakeRequest(session_id="s"), timeout=WAIT)
        assert caught.value.reason is Reason.IDENTITY_REVOKED
        still = orchestrator_pb2_grpc.OrchestratorStub(others)
        assert await still.Wake(orchestrator.WakeRequest(session_id="s"), timeout=WAIT)
        theirs.cancel()


class Uploads(Orchestrator):
    """Reads what is sent, to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    async def WriteBlob(
        self, request_iterator: AsyncIterator[orchestrator.WriteBlobRequest], context: Context
    ) -> orchestrator.WriteBlobResponse:
        async for _ in request_iterator:
            self.came.set()
        return orchestrator.WriteBlobResponse()


async def test_what_a_revoked_caller_still_sends_ends_too(
    pki: Pki, revocations: Revocations
) -> None:
    """An RPC whose answer is one message may last as long as a stream of answers."""
    files, service = pki.issue(Role.DAEMON, "d"), Uploads()
    async with (
        serve(
            "127.0.0.1:0",
            server_credentials(pki.issue(Role.BRAIN, "b")),
            lambda to: register(to, service),
            revocations=revocations,
        ) as server,
        dial(server.address, Role.BRAIN, files) as channel,
    ):
        upload = orchestrator_pb2_grpc.OrchestratorStub(channel).WriteBlob(timeout=WAIT)
        await upload.write(orchestrator.WriteBlobRequest())
        async with asyncio.timeout(WAIT):
            await service.came.wait()
        revocations.take(listed(pki, LATER, files.identity().uri), pki.ca_pem)
        async with asyncio.timeout(AT_ONCE):
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await upload
        assert caught.value.reason is Reason.IDENTITY_REVOKED


class Vault(vault_pb2_grpc.VaultServicer):
    """Answers with a list, true or not."""

    Sign = CreateToken = RevokeIdentity = ArchiveCredential = CreateCredential = not_built
    GetStatus = GrantSession = ListCredentials = ListTokens = ReadAudit = RevokeSession = not_built
    RevokeToken = Unseal = UpdateCredential = ValidateCredential = not_built

    def __init__(self, told: types_pb2.SignedBytes) -> None:
        self.told = told
        self.asked = 0

    async def GetTrust(
        self, request: vault_pb2.GetTrustRequest, context: Context
    ) -> vault_pb2.GetTrustResponse:
        self.asked += 1
        return vault_pb2.GetTrustResponse(revocations=self.told)


def vault(pki: Pki, service: Vault) -> AbstractAsyncContextManager[Server]:
    """A vault that serves."""
    credentials = server_credentials(pki.issue(Role.VAULT, "vault"))
    return serve(
        "127.0.0.1:0",
        credentials,
        lambda to: vault_pb2_grpc.add_VaultServicer_to_server(service, to),
    )


async def until(holds: Callable[[], bool], revocations: Revocations) -> None:
    """Until something holds of what is in force."""
    changed = asyncio.Event()
    revocations.on_change(changed.set)
    async with asyncio.timeout(WAIT):
        while not holds():
            changed.clear()
            await changed.wait()


async def test_a_restart_while_the_vault_is_away_forgets_no_revocation(
    pki: Pki, tmp_path: Path
) -> None:
    victim = pki.issue(Role.DAEMON, "d").identity()
    files, path = pki.issue(Role.BRAIN, "b"), tmp_path / REVOCATIONS
    async with vault(pki, Vault(listed(pki, 5, victim.uri))) as serving:
        async with following(serving.address, files, path) as watch:
            held = watch.revocations
            await until(lambda: is_refused(held, victim), held)
            async with asyncio.timeout(WAIT):
                while not path.exists():
                    await asyncio.to_thread(path.parent.stat)
        address = serving.address
    async with following(address, files, path) as watch:
        again = watch.revocations
        assert is_refused(again, victim)
    # What is not the vault's any more is not believed.
    path.write_bytes(listed(Pki(tmp_path / "x"), 9).SerializeToString())
    async with following(address, files, path) as watch:
        damaged = watch.revocations
        assert damaged.version == 0


async def test_following_goes_on_when_the_authorities_on_disk_were_damaged_for_a_while(
    pki: Pki, tmp_path: Path
) -> None:
    """Nobody else follows: who is revoked after it would be let in for ever."""
    victim, files = pki.issue(Role.DAEMON, "d").identity(), pki.issue(Role.BRAIN, "b")
    service = Vault(listed(pki, 5))
    async with (
        vault(pki, service) as serving,
        following(serving.address, files, tmp_path / REVOCATIONS) as watch,
    ):
        held = watch.revocations
        await until(lambda: held.version == 5, held)
        good = files.ca.read_bytes()
        files.ca.write_bytes(b"torn")
        asked = service.asked
        async with asyncio.timeout(WAIT):
            while service.asked < asked + 2:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.05)
        files.ca.write_bytes(good)
        service.told = listed(pki, 6, victim.uri)
        await until(lambda: is_refused(held, victim), held)


async def test_an_identity_revoked_at_the_vault_is_refused_by_whoever_follows_it(
    tmp_path: Path,
) -> None:
    async with trust(tmp_path / "state") as domain:
        daemon = domain.issue(Claims(Role.DAEMON, "build-1", "default"))
        files = domain.identity(Role.BRAIN, "brain-1")
        async with following(domain.vault_address, files, tmp_path / REVOCATIONS) as watch:
            held = watch.revocations
            operator = await domain.vault()
            revoke = vault_pb2.RevokeIdentityRequest(identity=daemon.identity().uri, reason="sold")
            await operator.RevokeIdentity(revoke, timeout=WAIT)
            async with asyncio.timeout(5.0 * SCALE):
                await until(lambda: is_refused(held, daemon.identity()), held)
