"""A daemon obeys a brain that proves which one it is, and none that the vault revoked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from brain.daemons.introduction import Introduction
from carpal.errors import CarpalError, Revoked
from carpal.identity import Identity, Role
from carpal.process import only_error
from carpal.proof import check_welcome, welcome_signature
from carpal.revocations import Revocations, revoked
from carpal.status import Reason
from carpal.v1 import hand_pb2, types_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands import app
from hands.link import brain_check
from hands.link.brain_check import BrainCheck
from tests.hands.fake_brain import FakeBrain, brain, serving, ticket
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, Place, until
from tests.hands.test_relink import Linking
from tests.pace import SCALE
from tests.pki import Pki
from tests.test_revocations import LATER, listed

ASKED = {"list_hands": hand_pb2.ListHandsRequest()}


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A trust domain."""
    return Pki(tmp_path / "pki")


@pytest.fixture
async def one(pki: Pki) -> AsyncIterator[FakeBrain]:
    """A brain."""
    async with brain(pki, "brain-1") as serving:
        yield serving


@pytest.fixture
async def two(pki: Pki) -> AsyncIterator[FakeBrain]:
    """Another one."""
    async with brain(pki, "brain-2") as serving:
        yield serving


@pytest.fixture
async def machine(pki: Pki, tmp_path: Path) -> AsyncIterator[Machine]:
    """A machine with a daemon."""
    enrolled = Machine(pki, tmp_path / "state")
    yield enrolled
    enrolled.kill_hands()


def revoke(pki: Pki, victim: FakeBrain, *told: FakeBrain) -> None:
    """Have brains hold a list with it, and tell their daemons, as real ones do."""
    for each in told:
        each.revocations.take(
            listed(pki, LATER + 1, victim.files.identity().uri, before=datetime.now(UTC)),
            pki.ca_pem,
        )
        if each.newest is not None:
            each.newest.tell_revocations(each.revocations.servers())


async def test_a_brain_that_is_revoked_is_left_at_once_and_never_obeyed_again(
    pki: Pki, machine: Machine, one: FakeBrain, two: FakeBrain
) -> None:
    """Also after the daemon restarts, and whatever brains say then."""
    machine.dials(one.address)
    two.epoch = 10
    async with machine.daemon():
        await (await one.link()).ask(**ASKED)
        assert one.newest is not None
        one.newest.tell_brains([one.address, two.address])
        revoke(pki, one, one)  # it says so itself
        await (await two.link()).ask(**ASKED)
        await until(lambda: "d" in one.ended, "the link to it goes on")
    one.epoch, two.epoch, two.admits = 90, 100, False
    async with machine.daemon():
        link = await one.links.get()
        await until(lambda: not link.open, "it is obeyed")
        two.admits = True
        await (await two.link()).ask(**ASKED)


async def test_a_daemon_hears_of_a_revoked_brain_from_another_in_the_welcome(
    pki: Pki, machine: Machine, one: FakeBrain, two: FakeBrain
) -> None:
    revoke(pki, two, one)
    machine.dials(one.address)
    async with machine.daemon():
        await (await one.link()).ask(**ASKED)
    check = BrainCheck(machine.files.revoked)
    with pytest.raises(CarpalError, match="stolen") as caught:
        check.check(two.files.identity())
    assert caught.value.reason is Reason.IDENTITY_REVOKED
    check.check(pki.issue(Role.BRAIN, "brain-2", not_before=datetime.now(UTC)).identity())


class Impostor(FakeBrain):
    """Says in its welcomes what it likes."""

    forge: Callable[[Identity, pb.Hello, pb.Welcome], None]

    def introduce(self, daemon: Identity, hello: pb.Hello, welcome: pb.Welcome) -> None:
        super().introduce(daemon, hello, welcome)
        self.forge(daemon, hello, welcome)


@pytest.mark.parametrize(
    "what", ["nothing", "another's nonce", "for another", "no brain's", "another name"]
)
async def test_a_welcome_without_a_good_proof_is_not_obeyed_and_another_brain_is_dialled(
    pki: Pki, place: Place, two: FakeBrain, what: str
) -> None:
    async with brain(pki, "brain-1", kind=Impostor) as liar:
        assert isinstance(liar, Impostor)
        key = liar.files.load().key
        eve = pki.issue(Role.DAEMON, "eve").load()

        def forge(daemon: Identity, hello: pb.Hello, welcome: pb.Welcome) -> None:
            if what == "nothing":
                welcome.ClearField("proof")
            elif what == "another's nonce":
                welcome.proof = welcome_signature(key, bytes(32), daemon.uri)
            elif what == "for another":
                welcome.proof = welcome_signature(key, hello.nonce, daemon.uri + "x")
            elif what == "another name":
                welcome.brain = "brain-2"
            else:
                welcome.certificate = eve.chain
                welcome.proof = welcome_signature(eve.key, hello.nonce, daemon.uri)

        liar.forge = forge
        linking = Linking(place, pki.issue(Role.DAEMON, "d"), liar, two)
        async with linking.running():
            await (await two.link()).ask(**ASKED)
        wrong = [error for error in linking.refused if error.reason is Reason.IDENTITY_INVALID]
        assert len(wrong) == liar.epoch


@pytest.mark.parametrize(
    "what", ["nothing", "signed by itself", "epoch", "resource", "holder", "workspace"]
)
async def test_a_welcome_at_an_epoch_that_no_sessiond_granted_is_not_obeyed_nor_remembered(
    pki: Pki, place: Place, two: FakeBrain, what: str
) -> None:
    """Or a brain that was taken over could shut a daemon out for ever, by the highest there is."""
    async with brain(pki, "brain-1", kind=Impostor) as liar:
        assert isinstance(liar, Impostor)

        def forge(daemon: Identity, hello: pb.Hello, welcome: pb.Welcome) -> None:
            granted = types_pb2.LeaseTicket.FromString(welcome.ticket.payload)
            welcome.epoch = granted.epoch = 2**64 - 1
            if what == "nothing":
                welcome.ClearField("ticket")
            elif what == "signed by itself":
                welcome.ticket.CopyFrom(ticket(liar.files, granted))
            elif what == "epoch":
                granted.epoch = 1
                welcome.ticket.CopyFrom(ticket(liar.store, granted))
            else:
                setattr(granted, what, "another's")
                welcome.ticket.CopyFrom(ticket(liar.store, granted))

        liar.forge = forge
        linking = Linking(place, pki.issue(Role.DAEMON, "d"), liar, two)
        async with linking.running():
            await (await two.link()).ask(**ASKED)
        wrong = [error for error in linking.refused if error.reason is Reason.IDENTITY_INVALID]
        assert len(wrong) == liar.epoch
        assert all("ticket" in error.message for error in wrong)


async def test_what_is_told_of_revocations_is_looked_at_up_to_a_bound_and_kept_when_it_is_true(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brain_check, "TOLD_MAX", 3)
    path = tmp_path / "revoked.bin"
    check = BrainCheck(path)
    made = [pki.issue(Role.BRAIN, f"b{number}").identity() for number in range(4)]
    await check.told([types_pb2.Revocation(identity=one.uri) for one in made], pki.ca_pem)
    assert not path.exists(), "nothing was true"
    known = Revocations()
    known.take(listed(pki, LATER, *(one.uri for one in made)), pki.ca_pem)
    await check.told(known.servers(), pki.ca_pem)
    kept = pb.Revocations.FromString(path.read_bytes()).revocations
    assert len(kept) == 3


@pytest.mark.parametrize("size", [15, 65])
def test_a_nonce_that_is_too_short_or_too_long_proves_nothing_at_either_end(
    pki: Pki, size: int
) -> None:
    me, daemon = pki.issue(Role.BRAIN, "brain-1"), pki.issue(Role.DAEMON, "d").identity()
    with pytest.raises(CarpalError, match=r"hello\.nonce") as caught:
        Introduction(me, Revocations()).to(daemon, pb.Hello(nonce=bytes(size)), pb.Welcome())
    assert caught.value.reason is Reason.INVALID_FIELD
    proof = welcome_signature(me.load().key, bytes(size), daemon.uri)
    leaf = x509.load_pem_x509_certificate(me.load().chain)
    assert not check_welcome(leaf, bytes(size), daemon.uri, proof)


async def test_what_no_trusted_authority_signed_about_brains_is_not_believed(
    pki: Pki, place: Place, one: FakeBrain, tmp_path: Path
) -> None:
    foreign = Pki(tmp_path / "foreign")
    one.revocations.take(
        listed(foreign, LATER, one.files.identity().uri, pki.issue(Role.BRAIN, "b").identity().uri),
        foreign.ca_pem,
    )
    async with Linking(place, pki.issue(Role.DAEMON, "d"), one).running():
        link = await one.link()
        assert len(one.revocations.servers()) == 2
        link.link.tell_revocations(one.revocations.servers())
        await link.ask(**ASKED)


async def test_a_link_lasts_no_longer_than_the_certificate_that_its_brain_showed(
    pki: Pki, place: Place, two: FakeBrain
) -> None:
    """One that is revoked gets no other, whatever it does not say."""
    soon = datetime.now(UTC) + timedelta(seconds=3 * SCALE)
    ends = pki.issue(Role.BRAIN, "brain-1", not_after=soon)
    async with serving(ends, pki.issue(Role.SESSIOND, "s")) as ending:
        linking = Linking(place, pki.issue(Role.DAEMON, "d"), ending)
        async with linking.running():
            await ending.link()
            linking.brains.append(two.address)
            await two.link()
            assert datetime.now(UTC) >= soon - timedelta(seconds=1)
            assert "is over" in str(linking.refused[0])


class SaysRevoked(FakeBrain):
    """Refuses every daemon as revoked, with or without the vault's word on it."""

    proven = b""

    async def _admit(self, link: object, hello: pb.Hello, protocol: int) -> pb.Welcome:
        self.epoch += 1
        uri = "spiffe://carpal.internal/daemon/d"
        row = types_pb2.Revocation(identity=uri, signature=self.proven)
        row.before.GetCurrentTime()
        raise revoked(row)


async def test_a_brains_word_alone_that_a_daemon_is_revoked_makes_it_dial_another(
    pki: Pki, machine: Machine, two: FakeBrain
) -> None:
    """A brain that was taken over must not be able to end every daemon there is."""
    async with brain(pki, "brain-1", kind=SaysRevoked) as liar:
        two.admits = False
        machine.dials(liar.address, two.address)
        async with machine.daemon():
            await until(lambda: liar.epoch > 1, "it ended, or dials no more")
            two.admits = True
            await (await two.link()).ask(**ASKED)


async def test_what_the_vault_signed_about_it_ends_a_daemon(
    pki: Pki, machine: Machine, one: FakeBrain
) -> None:
    machine.dials(one.address)
    config = app.HandConfig(state_dir=machine.state)
    running = asyncio.create_task(app.run(config, asyncio.Event()))
    await one.link()
    me = machine.files.identity.identity().uri
    one.revocations.take(listed(pki, LATER, me), pki.ca_pem)
    await asyncio.wait({running}, timeout=PATIENCE)
    failure = running.exception()
    assert failure is not None
    ended = only_error(failure)
    assert isinstance(ended, Revoked)
    assert "stolen" in str(ended)
