"""Processes renew their own identities through the vault, and it renews its own; none restarts."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.errors import CarpalError, Denied, Unreachable
from carpal.identity import Role
from carpal.own_identity import kept_renewed, through_vault
from carpal.status import Reason
from carpal.tls import IdentityFiles
from tests.hands.place import until
from tests.trust import Trust, trust
from vault import setup
from vault.app import VaultConfig, own_renewal, run
from vault.ca import Claims
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


async def test_two_commands_at_once_leave_one_whole_identity(domain: Trust) -> None:
    files = issued_before(domain, SELVES[2], 16 * HOURS)
    both = (through_vault(files, domain.vault_address).renew() for _ in range(2))
    done = await asyncio.gather(*both, return_exceptions=True)
    refused = [error for error in done if isinstance(error, BaseException)]
    assert len(refused) == 1
    assert isinstance(refused[0], CarpalError)
    assert files.load_valid().identity in done


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
