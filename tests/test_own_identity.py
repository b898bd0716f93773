"""Processes renew their own identities through the vault, and it renews its own; none restarts."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.bundle import is_by_newest
from carpal.errors import CarpalError, Denied, Unreachable
from carpal.identity import Role
from carpal.own_identity import kept_renewed, through_vault
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.trust_watch import REVOCATIONS, following
from tests.hands.place import until
from tests.trust import Trust, trust
from tests.vault.test_rollover import trusts
from vault import setup
from vault.app import VaultConfig, own_renewal, run
from vault.authority.ca import Claims
from vault.commands import rollover
from vault.files import VaultFiles

HOURS = timedelta(hours=1)
SELVES = [
    Claims(Role.BRAIN, "brain-1"),
    Claims(Role.SESSIOND, "sessiond"),
    Claims(Role.OPERATOR, "operator", "default"),
]


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    """A vault that has been there for a while."""
    async with trust(tmp_path, age=1000 * HOURS) as served:
        yield served


def issued_before(domain: Trust, claims: Claims, ago: timedelta) -> IdentityFiles:
    """An identity of this machine, as it was issued then."""
    files = domain.identity(claims.role, claims.name)
    domain.clock.offset = -ago
    setup.issue(domain.files, claims, files, domain.clock)
    domain.clock.offset = timedelta()
    return files


@pytest.mark.parametrize("claims", SELVES, ids=lambda claims: claims.role)
async def test_one_past_half_life_is_renewed_by_the_vault_for_a_new_key(
    domain: Trust, claims: Claims
) -> None:
    files = issued_before(domain, claims, 16 * HOURS)
    old = files.load()
    async with kept_renewed(through_vault(files, domain.vault_address)):
        await until(lambda: files.load() != old, "it was not renewed")
    new = files.load_valid()
    assert new.key_pem != old.key_pem
    assert new.identity.uri == old.identity.uri
    assert new.identity.workspace == old.identity.workspace
    assert new.identity.not_after - datetime.now(UTC) > 23 * HOURS


async def test_one_of_less_than_half_its_life_is_left_alone(domain: Trust) -> None:
    files = issued_before(domain, SELVES[0], 10 * HOURS)
    old = files.load()
    renewal = through_vault(files, domain.vault_address)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await renewal.until_due()
    assert files.load() == old


async def test_without_the_vault_what_there_is_stays(domain: Trust) -> None:
    files = issued_before(domain, SELVES[0], 16 * HOURS)
    old = files.load()
    with pytest.raises(Unreachable, match="vault"):
        await through_vault(files, "127.0.0.1:1").renew()
    assert files.load() == old


async def test_one_that_is_over_says_what_to_do(domain: Trust) -> None:
    """The vault asks for a valid certificate: after a day without it, a person issues one."""
    files = issued_before(domain, SELVES[0], 30 * HOURS)
    with pytest.raises(Denied, match="carpal vault issue brain brain-1") as refused:
        await through_vault(files, domain.vault_address).renew()
    assert refused.value.reason is Reason.CERTIFICATE_EXPIRED


async def test_of_two_commands_at_once_one_renews_and_the_other_waits_for_it(
    domain: Trust,
) -> None:
    files = issued_before(domain, SELVES[2], 16 * HOURS)
    both = (through_vault(files, domain.vault_address).renew() for _ in range(2))
    first, second = await asyncio.gather(*both)
    assert first == second == files.load_valid().identity


async def test_a_renewal_and_what_follows_the_authorities_wait_for_each_other(
    domain: Trust,
) -> None:
    """Both write the identity of one process, at the same moment whenever a CA is replaced."""
    files = issued_before(domain, SELVES[0], 1 * HOURS)
    old = files.identity()
    with files.writing():
        renewing = asyncio.create_task(through_vault(files, domain.vault_address).renew())
        await asyncio.sleep(0)
        with pytest.raises(CarpalError, match="another process"):
            async with files.writing_in_turn(0.05):
                pass
        assert not renewing.done()
    assert (await renewing).serial == files.identity().serial != old.serial


@pytest.mark.parametrize("claims", SELVES[:2], ids=lambda claims: claims.role)
async def test_a_server_renews_at_once_after_each_switch_and_nothing_is_in_its_way(
    domain: Trust, tmp_path: Path, claims: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    files = domain.identity(claims.role, claims.name)
    renewal = through_vault(files, domain.vault_address)
    kept = tmp_path / "list" / REVOCATIONS

    def newest() -> bool:
        return is_by_newest(files.certificate.read_bytes(), domain.service.bundle)

    async with (
        kept_renewed(renewal),
        following(domain.vault_address, files, kept, changed=renewal.hurry),
    ):
        for _ in range(2):
            rollover.prepare(domain.files, domain.clock)
            await until(lambda: len(trusts(files.directory)) == 2, "it never heard of the next")
            rollover.switch(domain.files)
            await until(newest, "it was not renewed")
            setup.issue(
                domain.files,
                Claims(Role.VAULT, "vault"),
                domain.identity(Role.VAULT, "vault"),
                domain.clock,
            )
            rollover.retire(domain.files, domain.clock, anyway=True, servers_too=True)
            await until(lambda: len(trusts(files.directory)) == 1, "it trusts the one before")
    assert "not renewed" not in caplog.text


async def test_a_server_that_was_off_during_the_switch_renews_when_it_is_back(
    domain: Trust, tmp_path: Path
) -> None:
    files = domain.identity(Role.SESSIOND, "sessiond")
    rollover.prepare(domain.files, domain.clock)
    rollover.switch(domain.files)
    renewal = through_vault(files, domain.vault_address)
    async with (
        kept_renewed(renewal),
        following(
            domain.vault_address, files, tmp_path / "list" / REVOCATIONS, changed=renewal.hurry
        ),
    ):
        await until(
            lambda: is_by_newest(files.certificate.read_bytes(), domain.service.bundle),
            "it was not renewed",
        )


async def test_the_vault_renews_its_own_and_shows_it_without_a_restart(
    tmp_path: Path, domain: Trust
) -> None:
    files = domain.identity(Role.VAULT, "vault")
    host, _, port = domain.vault_address.rpartition(":")

    def shown() -> str:
        return ssl.get_server_certificate((host, int(port)), timeout=10)

    before = await asyncio.to_thread(shown)
    await own_renewal(domain.service, files).renew()
    after = await asyncio.to_thread(shown)
    assert after != before
    assert after.strip() in files.load_valid().chain.decode()


@pytest.mark.parametrize("hours", [16, 30, 900])
async def test_a_vault_that_was_off_for_long_serves_again_by_itself(
    tmp_path: Path, hours: int
) -> None:
    files = VaultFiles(tmp_path)

    def then() -> datetime:
        return datetime.now(UTC) - hours * HOURS

    setup.init(files, "carpal.internal", [Claims(Role.VAULT, "vault")], then)
    identity = files.identity(Role.VAULT, "vault")
    before = identity.load()
    stop = asyncio.Event()
    running = asyncio.create_task(run(VaultConfig(state_dir=tmp_path, listen="127.0.0.1:0"), stop))
    await until(lambda: running.done() or identity.load() != before, "it was not renewed")
    stop.set()
    await running
    assert not identity.load_valid().identity.expired(datetime.now(UTC))
