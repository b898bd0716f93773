"""The authority is replaced step by step while everything runs, and nobody is locked out."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from cryptography import x509

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError, from_status, to_status
from carpal.identity import Role, verified_identity
from carpal.proof import Token, ca_pin
from carpal.revocations import Revocations, believed, proves
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, Shown, new_key, server_credentials
from carpal.trust_watch import REVOCATIONS, following
from carpal.v1 import orchestrator_pb2 as orchestrator
from carpal.v1 import orchestrator_pb2_grpc
from hands.enroll import enroll, renew
from tests.pace import SCALE
from tests.test_server import Orchestrator
from tests.trust import Trust, trust
from vault import setup
from vault.app import now
from vault.authority import authority_keys, ca
from vault.authority.authorities import Phase
from vault.authority.ca import Claims
from vault.authority.revoking import Revoker
from vault.authority.signing import Signer
from vault.cli import vault
from vault.commands import rollover
from vault.files import RETIRING, Following, VaultFiles
from vault.opened import authorities_of, authority_of, opened

WAIT = 10.0 * SCALE


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "state") as served:
        yield served


async def nowhere(shown: Shown) -> None:
    """Whoever is asked lets the new identity in."""


async def renewed(domain: Trust, folder: Path) -> None:
    await renew(folder, domain.enrollment_address, nowhere)


def servers_renew(domain: Trust) -> None:
    """As they do by themselves within a day."""
    for role, name in ((Role.VAULT, "vault"), (Role.BRAIN, "brain-1"), (Role.SESSIOND, "sessiond")):
        setup.issue(domain.files, Claims(role, name), domain.identity(role, name), domain.clock)


def issuer(folder: Path) -> str:
    """Which CA signed an identity's leaf."""
    chain = IdentityFiles(folder).certificate.read_bytes()
    leaf = x509.load_pem_x509_certificate(chain)
    held = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    return (held.key_identifier or b"").hex()


def trusts(folder: Path) -> set[str]:
    """Which CAs an identity trusts."""
    roots = x509.load_pem_x509_certificates(IdentityFiles(folder).ca.read_bytes())
    return {ca.key_id(root) for root in roots}


async def test_a_hand_that_was_away_through_prepare_and_switch_comes_back_and_one_joins_meanwhile(
    domain: Trust, tmp_path: Path
) -> None:
    """L29: one was away, one holds a token from before, one renews in every phase."""
    late, steady, joining = (tmp_path / name / "identity" for name in ("late", "steady", "join"))
    await enroll(await domain.token("late"), late)
    await enroll(await domain.token("steady"), steady)
    token = await domain.token("joining")
    old = ca.key_id(authority_of(domain.files).certificate)

    new = ca.key_id(_next(rollover.prepare(domain.files, domain.clock).other))
    await renewed(domain, steady)
    assert (issuer(steady), trusts(steady)) == (old, {old, new})
    between = await domain.token("between")
    assert len(between.pins) == 2

    rollover.switch(domain.files)
    await renewed(domain, steady)
    assert (issuer(steady), trusts(steady)) == (new, {old, new})
    servers_renew(domain)
    # Their servers show certificates of a CA that these two have never heard of.
    assert trusts(late) == {old}
    await renewed(domain, late)
    assert (issuer(late), trusts(late)) == (new, {old, new})
    await enroll(token, joining)
    assert (issuer(joining), trusts(joining)) == (new, {old, new})

    setup.issue(
        domain.files,
        Claims(Role.OPERATOR, "operator", "default"),
        domain.identity(Role.OPERATOR, "operator"),
        domain.clock,
    )
    rollover.retire(domain.files, domain.clock)
    servers_renew(domain)
    await renewed(domain, steady)
    assert (issuer(steady), trusts(steady)) == (new, {new})
    await enroll(between, tmp_path / "between" / "identity")
    assert trusts(tmp_path / "between" / "identity") == {new}


async def test_who_slept_through_it_all_is_refused_and_comes_back_with_a_new_token(
    domain: Trust, tmp_path: Path
) -> None:
    folder = tmp_path / "late" / "identity"
    await enroll(await domain.token("late"), folder)
    rollover.prepare(domain.files, domain.clock)
    rollover.switch(domain.files)
    with pytest.raises(CarpalError, match="5 identities have"):
        rollover.retire(domain.files, domain.clock)
    rollover.retire(domain.files, domain.clock, anyway=True, servers_too=True)
    servers_renew(domain)
    before = IdentityFiles(folder).certificate.read_bytes()
    with pytest.raises(CarpalError):
        await renewed(domain, folder)
    assert IdentityFiles(folder).certificate.read_bytes() == before, "it keeps what it has"
    operator = setup.issue(
        domain.files,
        Claims(Role.OPERATOR, "operator", "default"),
        domain.identity(Role.OPERATOR, "operator"),
        domain.clock,
    )
    assert operator.identity.name == "operator"
    await enroll(await domain.token("late"), folder)
    assert len(trusts(folder)) == 1


async def test_a_server_follows_the_authorities_without_a_restart(
    domain: Trust, tmp_path: Path
) -> None:
    """Prepared, both are let in; retired, what the old one signed is refused at the handshake."""
    files = domain.identity(Role.BRAIN, "brain-1")
    ada = domain.issue(Claims(Role.OPERATOR, "ada", "default"))
    old = trusts(files.directory)

    async def until(many: int) -> None:
        async with asyncio.timeout(WAIT):
            while len(trusts(files.directory)) != many:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)

    def register(server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(Orchestrator(), server)

    async with (
        following(domain.vault_address, files, tmp_path / REVOCATIONS),
        serve("127.0.0.1:0", server_credentials(files), register) as server,
    ):
        rollover.prepare(domain.files, domain.clock)
        await until(2)
        rollover.switch(domain.files)
        bob = domain.issue(Claims(Role.OPERATOR, "bob", "default"))
        # ada knows only the old CA, bob's certificate is by the new one.
        for who in (ada, bob):
            assert await asked(server.address, who)
        servers_renew(domain)
        for who in (ada, bob):
            assert await asked(server.address, who)
        rollover.retire(domain.files, domain.clock, anyway=True, servers_too=True)
        await until(1)
        assert not old & trusts(files.directory)
        assert await asked(server.address, bob)
        with pytest.raises(CarpalError) as caught:
            await asked(server.address, ada)
        assert caught.value.reason is Reason.UNREACHABLE
        # A refusal by TLS has no words: the likely cause is named.
        assert "carpal hand diagnose" in str(caught.value)


async def asked(address: str, files: IdentityFiles) -> bool:
    """A connection of its own, and one RPC on it."""
    async with dial(address, Role.BRAIN, files, retry=False) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        with rpc_errors("the brain"):
            await stub.ListDaemons(orchestrator.ListDaemonsRequest(), timeout=WAIT)
    return True


async def test_a_revocation_is_taken_also_when_the_next_authority_signs_the_list(
    domain: Trust, tmp_path: Path
) -> None:
    """One that knew only the old one learns of the next and of the list in one answer."""
    rollover.prepare(domain.files, domain.clock)
    rollover.switch(domain.files)
    daemon = domain.issue(Claims(Role.DAEMON, "d", "default"))
    setup.revoke(domain.files, Role.DAEMON, "d", "", domain.clock)
    files = domain.identity(Role.BRAIN, "brain-1")
    async with following(domain.vault_address, files, tmp_path / REVOCATIONS) as watch:
        held = watch.revocations
        async with asyncio.timeout(WAIT):
            while not held.version:  # noqa: ASYNC110 - the next list may be the first
                await asyncio.sleep(0.05)
        with pytest.raises(CarpalError) as caught:
            held.check(daemon.identity())
        assert caught.value.reason is Reason.IDENTITY_REVOKED


@pytest.mark.parametrize("seen_after", range(3))
@pytest.mark.parametrize("revoked_after", range(3))
def test_a_daemon_that_knows_only_the_old_authority_believes_that_it_is_revoked_in_every_phase(
    files: VaultFiles, revoked_after: int, seen_after: int
) -> None:
    """Whether it is revoked first or the CA is replaced first; it did not renew since."""
    thief = files.state.parent / "stolen" / "identity"
    setup.issue(files, Claims(Role.DAEMON, "build-1", "default"), IdentityFiles(thief), now)
    me, held = IdentityFiles(thief).identity(), Revocations()
    steps: list[Callable[[], object]] = [
        lambda: rollover.prepare(files, now),
        lambda: rollover.switch(files),
    ]
    with opened(files) as it:
        store = it.store
        revoker = Revoker(Signer(Following(files, it.key_of), store, now), store, now)
        for phase in range(max(revoked_after, seen_after) + 1):
            if phase:
                steps[phase - 1]()
            if phase == revoked_after:
                setup.revoke(files, Role.DAEMON, "build-1", "stolen", now)
                setup.revoke(files, Role.BRAIN, "b", "", now)
            held.take(revoker.signed_list(), authorities_of(files).bundle)
    with pytest.raises(CarpalError) as caught:
        held.check(me)
    refusal = from_status(to_status(caught.value))
    old = IdentityFiles(thief).ca.read_bytes()
    assert proves(refusal, me, old)
    assert believed(held.servers(), old), "nor does it obey a brain that is revoked"
    assert believed(held.servers(), authorities_of(files).signing.pem)


def test_after_retire_those_who_know_only_the_new_authority_believe_what_was_revoked_before(
    files: VaultFiles,
) -> None:
    held = Revocations()
    with opened(files) as it:
        store = it.store
        revoker = Revoker(Signer(Following(files, it.key_of), store, now), store, now)
        setup.revoke(files, Role.BRAIN, "b", "", now)
        held.take(revoker.signed_list(), authorities_of(files).bundle)
        rollover.prepare(files, now)
        rollover.switch(files)
        after = rollover.retire(files, now)
        assert not believed(held.servers(), after.bundle)
        assert not held.take(revoker.signed_list(), after.bundle), "it is no news"
    assert believed(held.servers(), after.bundle)


def test_a_server_is_revoked_by_the_command_of_the_how_to(files: VaultFiles) -> None:
    state = ["--state-dir", str(files.state)]
    ran = CliRunner().invoke(vault, ["revoke", "brain", "b", *state])
    assert (ran.exit_code, ran.output) == (0, "revoked spiffe://x.example/brain/b\n")


def _next(certificate: x509.Certificate | None) -> x509.Certificate:
    assert certificate is not None
    return certificate


@pytest.fixture
def files(tmp_path: Path) -> VaultFiles:
    """A vault that does not serve."""
    made = VaultFiles(tmp_path / "state")
    setup.init(made, "x.example", [Claims(Role.BRAIN, "b")], now)
    return made


def test_each_step_comes_after_the_one_before_and_says_what_is_next(files: VaultFiles) -> None:
    def refused(step: str) -> str:
        steps: dict[str, Callable[[], object]] = {
            "prepare": lambda: rollover.prepare(files, now),
            "switch": lambda: rollover.switch(files),
            "retire": lambda: rollover.retire(files, now),
        }
        with pytest.raises(CarpalError) as caught:
            steps[step]()
        assert caught.value.reason is Reason.CONFIG_INVALID
        return str(caught.value)

    assert "prepare" in refused("switch")
    assert "prepare" in refused("retire")
    before = authority_of(files).certificate
    rollover.prepare(files, now)
    assert "switch" in refused("prepare")
    assert "switch" in refused("retire")
    assert authority_of(files).certificate == before
    rollover.switch(files)
    assert "retire" in refused("switch")
    assert "spiffe://x.example/brain/b" in refused("retire")
    setup.issue(files, Claims(Role.BRAIN, "b"), files.identity(Role.BRAIN, "b"), now)
    after = rollover.retire(files, now)
    assert (after.phase, after.signing.certificate == before) == (Phase.SETTLED, False)
    with opened(files) as it:
        assert not authority_keys.holds(it.safe, before), "its key is destroyed"
    # And again, from the start.
    rollover.prepare(files, now)


def test_an_authority_that_may_sign_no_other_is_told_how_it_is_replaced_and_stays(
    files: VaultFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollover, "_path_length", lambda _: 0)
    with pytest.raises(CarpalError) as caught:
        rollover.prepare(files, now)
    page, heading = re.findall(r"(docs/\S+\.md), '(.+)'", str(caught.value))[0]
    assert f"### {heading}\n" in (Path(__file__).parents[2] / page).read_text()
    assert authorities_of(files).phase is Phase.SETTLED


@pytest.mark.parametrize("written", ["nothing", "the certificate", "the key", "all but the rest"])
def test_a_retirement_that_is_cut_short_anywhere_is_one_or_the_other(
    files: VaultFiles, written: str
) -> None:
    rollover.prepare(files, now)
    following = rollover.switch(files).signing.certificate
    files.rollover.write_text(json.dumps({"phase": RETIRING}))
    if written in ("the certificate", "the key", "all but the rest"):
        files.ca.write_bytes(files.next_ca.read_bytes())
    if written in ("the key", "all but the rest"):
        with opened(files) as it, it.safe.transaction():
            authority_keys.destroy_others(it.safe, following)
    if written == "all but the rest":
        files.rollover.unlink()
    assert authorities_of(files).roots == (following,)
    if written != "all but the rest":
        assert rollover.retire(files, now).roots == (following,)
    assert rollover.prepare(files, now).signing.certificate == following


def test_a_damaged_file_leaves_a_serving_vault_what_it_has(files: VaultFiles) -> None:
    with opened(files) as it:
        following = Following(files, it.key_of)
        before = following()
        rollover.prepare(files, now)
        assert following().phase is Phase.PREPARED
        files.rollover.write_text("{")
        assert following().phase is Phase.PREPARED
        files.rollover.unlink()
        assert following().roots == before.roots


def test_status_names_who_has_yet_to_renew_and_who_is_away(files: VaultFiles) -> None:
    rollover.prepare(files, now)
    rollover.switch(files)
    with opened(files) as it:
        rows = it.store.holders_of_others("", int(now().timestamp()))
        assert [identity for identity, _ in rows] == ["spiffe://x.example/brain/b"]
    later = now() + timedelta(days=2)
    with opened(files) as it:
        left = rollover.holders(it.store, it.authorities(), later)
    assert (left.good, left.away) == ([], ["spiffe://x.example/brain/b"])
    state = ["--state-dir", str(files.state)]
    ran = CliRunner().invoke(vault, ["ca", "status", "--json", *state])
    told = json.loads(ran.output)
    assert (told["phase"], told["still_to_renew"]) == ("switched", ["spiffe://x.example/brain/b"])
    assert [root["signs"] for root in told["authorities"]] == [True, False]
    people = CliRunner().invoke(vault, ["ca", "status", *state]).output
    assert "brain/b has yet to renew" in people


def cli(files: VaultFiles, *arguments: str) -> str:
    """What `carpal vault ca` says, when it does what it is told."""
    ran = CliRunner().invoke(vault, ["ca", *arguments, "--state-dir", str(files.state)])
    assert ran.exit_code == 0, ran.output
    return ran.output


def issue_elsewhere(files: VaultFiles, *holders: Claims) -> None:
    """As on other machines."""
    for one in holders:
        out = IdentityFiles(files.state.parent / "elsewhere" / one.role / one.name)
        setup.issue(files, one, out, now)


def test_retire_renews_who_is_on_this_machine_and_says_whom_it_cuts_off_and_the_way_back(
    files: VaultFiles,
) -> None:
    """Also the operator who types it, and the servers beside it."""
    me = Claims(Role.OPERATOR, "operator", "default")
    here = files.identity(Role.OPERATOR, "operator")
    setup.issue(files, me, here, now)
    issue_elsewhere(
        files, Claims(Role.DAEMON, "build-1", "default"), Claims(Role.OPERATOR, "ada", "default")
    )
    rollover.prepare(files, now)
    new = ca.key_id(rollover.switch(files).signing.certificate)
    said = cli(files, "retire", "--yes")
    for folder in (here, files.identity(Role.BRAIN, "b")):
        assert f"issued {folder.identity().uri} anew: {folder.directory}" in said
        assert (issuer(folder.directory), trusts(folder.directory)) == (new, {new})
    daemon = "spiffe://x.example/daemon/build-1 is cut off, and renews no more."
    assert f"{daemon} to let it in: carpal fleet token --name build-1 --out FILE" in said
    assert "operator/ada is cut off" in said
    assert "carpal vault issue operator ada" in said
    # And later too.
    people = cli(files, "status")
    assert people.startswith("settled")
    assert daemon in people
    assert "yet to renew" not in people
    told = json.loads(cli(files, "status", "--json"))
    assert (told["still_to_renew"], told["away"]) == ([], [])
    assert told["cut_off"] == [
        "spiffe://x.example/daemon/build-1",
        "spiffe://x.example/operator/ada",
    ]


def test_retire_cuts_no_server_off_unless_it_is_told_so_twice(files: VaultFiles) -> None:
    """Nothing goes on without them, and a running one renews within seconds."""
    issue_elsewhere(files, Claims(Role.SESSIOND, "sessiond"))
    rollover.prepare(files, now)
    rollover.switch(files)
    state = ["--state-dir", str(files.state)]
    for flags in ([], ["--yes"], ["--servers-too"]):
        ran = CliRunner().invoke(vault, ["ca", "retire", *flags, *state])
        assert isinstance(ran.exception, CarpalError)
        assert "spiffe://x.example/sessiond/sessiond" in str(ran.exception)
        assert authorities_of(files).phase is Phase.SWITCHED
    assert "--servers-too" in str(
        CliRunner().invoke(vault, ["ca", "retire", "--yes", *state]).exception
    )
    said = cli(files, "retire", "--yes", "--servers-too")
    assert "carpal vault issue sessiond sessiond" in said


def test_the_cross_certificate_leads_from_the_old_authority_to_leaves_of_the_new_only(
    files: VaultFiles,
) -> None:
    rollover.prepare(files, now)
    old = files.ca.read_bytes()
    authorities = rollover.switch(files)
    setup.issue(files, Claims(Role.BRAIN, "b"), files.identity(Role.BRAIN, "b"), now)
    chain = files.identity(Role.BRAIN, "b").load().chain
    assert verified_identity(chain, old, now()).name == "b"
    # The next CA may not make CAs with that.
    third = ca.new_authority(new_key(), "x.example", now())
    far = ca.cross_sign(authorities.signing, third.certificate, now())
    leaf = ca.issue(
        third,
        Claims(Role.BRAIN, "evil"),
        public_key=third.key.public_key(),
        not_before=now(),
        not_after=now() + ca.LEAF_LIFETIME,
    )
    evil = ca.pem(leaf) + ca.pem(far) + authorities.crosses
    with pytest.raises(CarpalError):
        verified_identity(evil, old, now() + timedelta(seconds=1))


async def test_a_token_names_every_authority_there_is(domain: Trust) -> None:
    first: Token = await domain.token("a")
    rollover.prepare(domain.files, domain.clock)
    second = await domain.token("b")
    authorities = authorities_of(domain.files)
    assert second.pins == tuple(ca_pin(ca.der(root)) for root in authorities.roots)
    assert set(first.pins) < set(second.pins)
