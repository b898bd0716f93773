"""The daemon as a whole, around the end of its certificate: it recovers by itself."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.identity import Role
from carpal.proof import Token
from carpal.tls import IdentityFiles
from carpal.v1 import hand_pb2
from hands import app
from hands.enroll import Links, enroll, links_path
from hands.files import HandFiles
from tests.hands.fake_brain import FakeBrain, serving
from tests.hands.place import PATIENCE, until
from tests.pace import SCALE
from tests.pki import Pki
from tests.test_renewal import full_after
from tests.trust import Trust, trust
from vault.authority.ca import Claims
from vault.opened import authority_of

DAYS = timedelta(days=1)


class Machine:
    """One machine, enrolled in a real trust domain; a brain of which it dials."""

    def __init__(self, domain: Trust, state: Path, brain: FakeBrain) -> None:
        self.domain = domain
        self.state = state
        self.brain = brain
        self.files = HandFiles(state)
        self.ready = False

    @property
    def identity(self) -> IdentityFiles:
        """Who the daemon is."""
        return self.files.identity

    def has_identity_of(self, ago: timedelta) -> None:
        """An identity that was issued then, for a day, and where to dial."""
        self.domain.clock.offset = -ago
        issued = self.domain.issue(Claims(Role.DAEMON, "d", "default")).load()
        self.domain.clock.offset = timedelta()
        self.identity.install(issued.key_pem, issued.chain, issued.ca)
        self.dials(self.domain.enrollment_address)

    def dials(self, enrollment: str) -> None:
        """Where it dials."""
        Links((self.brain.address,), enrollment).save(links_path(self.files.identity_dir))

    @asynccontextmanager
    async def daemon(self, token: Token | None = None) -> AsyncIterator[None]:
        """The daemon, running; `ready` is what its ready pipe said so far."""
        stop = asyncio.Event()
        reader, writer = os.pipe()
        self.ready = False

        def said() -> None:
            asyncio.get_running_loop().remove_reader(reader)
            self.ready = bool(os.read(reader, 1))

        asyncio.get_running_loop().add_reader(reader, said)
        config = app.HandConfig(state_dir=self.state)
        running = asyncio.create_task(
            app.run(config, stop, token=token, ready_fd=writer, hand_types={})
        )
        try:
            yield
        finally:
            stop.set()
            async with asyncio.timeout(PATIENCE):
                await running
            asyncio.get_running_loop().remove_reader(reader)
            os.close(reader)


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    """A vault and an enrolment port."""
    async with trust(tmp_path / "domain", age=60 * DAYS) as served:
        yield served


@pytest.fixture
async def machine(domain: Trust, tmp_path: Path) -> AsyncIterator[Machine]:
    """A machine and its brain."""
    me, store = domain.identity(Role.BRAIN, "brain-1"), domain.identity(Role.SESSIOND, "s")
    async with serving(me, store) as brain:
        yield Machine(domain, tmp_path / "machine", brain)


async def test_a_certificate_past_half_life_is_renewed_by_a_new_link_and_the_old_is_drained_l30(
    machine: Machine,
) -> None:
    """L30: the renewed certificate is connected with on a new channel, and only then promoted."""
    machine.has_identity_of(timedelta(hours=16))
    before = machine.identity.load()
    async with machine.daemon():
        serials = [(await machine.brain.link()).link.identity.serial]
        if serials[0] == before.identity.serial:  # the first dial was quicker than the renewal
            asked = await machine.brain.link()
            serials.append(asked.link.identity.serial)
        await until(lambda: machine.identity.load() != before, "it was not promoted")
        after = machine.identity.load_valid()
        assert serials[-1] == after.identity.serial
        assert after.identity.uri == before.identity.uri
        assert after.identity.not_after > before.identity.not_after
        assert machine.brain.links.empty()


async def test_a_machine_asleep_past_expiry_renews_by_possession_and_is_not_ready_until_then_l26(
    machine: Machine,
) -> None:
    """L26: on wake it renews by its old key; readiness is false meanwhile."""
    machine.has_identity_of(3 * DAYS)
    expired = machine.identity.load()
    machine.brain.admits = False  # so that there is a meanwhile
    async with machine.daemon():
        await until(machine.identity.candidate.exists, "it did not ask for another")
        assert not machine.ready
        assert machine.identity.load() == expired
        machine.brain.admits = True
        asked = await machine.brain.link()
        await asked.ask(list_hands=hand_pb2.ListHandsRequest())
        await until(lambda: machine.ready, "it did not say that it is ready")
        await until(lambda: machine.identity.load() != expired, "it was not promoted")
    assert machine.identity.load_valid().identity.serial == asked.link.identity.serial


async def test_a_consumed_token_stops_neither_a_valid_nor_an_expired_certificate_l27(
    machine: Machine, domain: Trust
) -> None:
    """L27: a restart with the token that enrolled it; the certificate is never deleted."""
    token = await domain.token("d")
    await enroll(token, machine.files.identity_dir)
    machine.dials(domain.enrollment_address)
    valid = machine.identity.load()
    async with machine.daemon(token):
        await machine.brain.link()
    assert machine.identity.load() == valid
    machine.dials("127.0.0.1:1")  # as if enrolled elsewhere: then the token is tried, and refused
    async with machine.daemon(token):
        await machine.brain.link()
    assert machine.identity.load() == valid
    machine.has_identity_of(3 * DAYS)
    async with machine.daemon(token):
        await machine.brain.link()
        await until(lambda: not machine.identity.identity().expired(_now()), "it was not promoted")


async def test_the_key_fails_to_save_and_the_old_key_reconnects_it_also_after_reboot_s13(
    machine: Machine,
) -> None:
    """S13: the certificate expires while the disk is full."""
    machine.has_identity_of(25 * DAYS / 24)
    expired = machine.identity.load()
    links = []
    with full_after(0):
        for _boot in range(2):
            async with machine.daemon():
                asked = await machine.brain.link()
                await asked.ask(list_hands=hand_pb2.ListHandsRequest())
                links.append(asked.link.identity)
            assert machine.identity.load() == expired
    assert not any(identity.expired(_now()) for identity in links)
    async with machine.daemon():
        await machine.brain.link()
        await until(lambda: machine.identity.load() != expired, "it was not saved")


async def test_a_stream_whose_certificate_expires_is_replaced_before_it_ends(
    machine: Machine, domain: Trust
) -> None:
    """L30: the link that ends by itself in a moment has a successor by then."""
    life = timedelta(seconds=4 * SCALE)
    pki = Pki(machine.state)
    pki.authority = authority_of(domain.files)
    now = _now()
    short = pki.issue(Role.DAEMON, "d", not_before=now, not_after=now + life).load()
    machine.identity.install(short.key_pem, short.chain, short.ca)
    machine.dials(domain.enrollment_address)
    async with machine.daemon():
        first = await machine.brain.link()
        assert first.link.identity.serial == short.identity.serial
        second = await machine.brain.link()
        assert _now() < short.identity.not_after
        await second.ask(list_hands=hand_pb2.ListHandsRequest())
        await until(lambda: first.link.draining, "the old link was not drained")


def _now() -> datetime:
    return datetime.now(UTC)
