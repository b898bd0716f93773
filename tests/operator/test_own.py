"""An operator's identity renews when a command is run past its half-life, if the vault answers."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from carpal.identity import Role
from carpal.operator import own
from carpal.operator.connection import Found, connect_vault
from carpal.renewal import utc_now
from carpal.tls import IdentityFiles
from carpal.v1 import vault_pb2
from tests.trust import Trust, trust
from vault import setup
from vault.authority.ca import Claims

HOURS = timedelta(hours=1)


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path, age=1000 * HOURS) as served:
        yield served


@pytest.fixture(autouse=True)
def first_command() -> Iterator[None]:
    """As in a process of its own."""
    own._tried.clear()
    yield
    own._tried.clear()


def issued_before(domain: Trust, ago: timedelta) -> IdentityFiles:
    files = domain.identity(Role.OPERATOR, "operator")
    domain.clock.offset = -ago
    setup.issue(domain.files, Claims(Role.OPERATOR, "operator", "default"), files, domain.clock)
    domain.clock.offset = timedelta()
    return files


async def status(found: Found) -> str:
    """What a command asks, say."""
    async with connect_vault(found) as vault:
        answer = await vault.GetStatus(vault_pb2.GetStatusRequest(), timeout=10)
    return answer.trust_domain


async def test_a_command_past_half_life_renews_first(domain: Trust) -> None:
    files = issued_before(domain, 16 * HOURS)
    before = files.load()
    assert await status(Found(files, "", domain.vault_address)) == "carpal.internal"
    after = files.load_valid()
    assert after != before
    assert after.identity.not_after - utc_now() > 23 * HOURS


async def test_a_command_before_half_life_asks_for_nothing(domain: Trust) -> None:
    files = issued_before(domain, 10 * HOURS)
    before = files.load()
    await status(Found(files, "", domain.vault_address))
    assert files.load() == before


@pytest.mark.parametrize(("ago", "said"), [(16, False), (23, True)])
async def test_without_the_vault_a_command_goes_on_and_says_so_only_near_the_end(
    domain: Trust, capsys: pytest.CaptureFixture[str], ago: int, said: bool
) -> None:
    files = issued_before(domain, ago * HOURS)
    before = files.load()
    async with own.renewed(files, "127.0.0.1:1"):
        assert files.load() == before
    assert ("was not renewed" in capsys.readouterr().err) == said


async def test_where_the_vault_is_not_known_nothing_is_done(domain: Trust) -> None:
    files = issued_before(domain, 16 * HOURS)
    before = files.load()
    async with own.renewed(files, ""):
        assert files.load() == before
