"""A drive's grant, of a real vault: it is bought, renewed, bought anew, and ended."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from brain.mcp.grants import Door, SessionGrant
from brain.mcp.proxy import Proxy
from brain.session.driver import Anew, Driver
from brain.session.transcript import Transcript
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import types_pb2
from tests.trust import trust
from tests.vault.grants.test_grants import Vault
from vault.grants.grants import Grants

AGENT = {
    "mcp_servers": [{"name": "a", "url": "https://mcp.a.com/mcp"}],
    "vault_ids": ["default"],
}
LIMIT = 10.0


@dataclass
class Lease:
    ticket: types_pb2.SignedBytes
    term: float = 10.0


@dataclass
class Drive:
    """What of a driver a grant needs."""

    lease: Lease
    session_id: str = "s1"
    transcript: Transcript = field(default_factory=Transcript)

    def check_lease(self) -> None:
        """It is held."""

    async def check_refusal(self) -> None:
        """Sessiond says that it is held."""


@dataclass
class There:
    vault: Vault
    door: Door

    def grant(self, epoch: int = 1, *, term: float = 10.0, **more: Any) -> SessionGrant:
        drive = Drive(Lease(self.vault.ticket(epoch, age=10.0 - term), term))
        drive.transcript.agent = dict(AGENT)
        return SessionGrant(cast(Driver, drive), self.door, **more)

    @property
    def grants(self) -> Grants:
        return self.vault.domain.service.grants

    def restart(self) -> None:
        """As a vault that was restarted: it has given no grant."""
        self.grants.close()
        self.vault.domain.service.grants = Grants(lambda *_, **__: None)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[There]:
    async with trust(tmp_path / "state") as domain:
        vault = Vault(domain)
        stub = await domain.vault(vault.files["brain-1"])
        async with Proxy("127.0.0.1:1", vault.files["brain-1"]) as proxy:
            yield There(vault, Door(stub, proxy))


async def test_a_grant_is_bought_once_and_has_the_agents_servers_and_vaults(there: There) -> None:
    grant = there.grant()
    tokens = await asyncio.gather(*(grant.token() for _ in range(5)))
    assert len(set(tokens)) == 1
    held = await there.vault.check(tokens[0])
    assert [(each.url, each.allow) for each in held.servers.values()] == [
        ("https://mcp.a.com/mcp", ("*",))
    ]
    assert (held.vaults, held.terms.caller) == (("default",), there.vault.who().uri)


async def test_a_grant_is_renewed_while_its_drive_goes_on_and_ends_with_it(there: There) -> None:
    grant = there.grant(renew=0.05)
    held = await there.vault.check(await grant.token())
    until = held.until
    keeping = asyncio.create_task(grant.keep())
    try:
        async with asyncio.timeout(LIMIT):
            while held.until < until + 0.2:  # noqa: ASYNC110 - the vault's own clock
                await asyncio.sleep(0.01)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    await grant.revoke()
    assert held.revoked.is_set()
    assert len(there.grants) == 0


async def test_a_vault_that_was_restarted_gives_another_for_a_ticket_that_is_not_over(
    there: There,
) -> None:
    grant = there.grant()
    before = await grant.token()
    there.restart()
    assert await grant.token() == before, "nobody said that it is none"
    grant.doubt(before)
    assert (await there.vault.check(await grant.token())).session == "s1"


async def test_once_the_ticket_is_over_only_another_lease_helps(there: There) -> None:
    grant = there.grant(term=0.3)
    before = await grant.token()
    ended = time.monotonic() + 0.4
    there.restart()
    await asyncio.sleep(ended - time.monotonic())  # the ticket's own time
    grant.doubt(before)
    with pytest.raises(Anew):
        await grant.token()
    assert await there.grant(2).token()


async def test_what_one_session_is_refused_makes_each_ask_again_before_it_is_too(
    there: There,
) -> None:
    one, other = there.grant(), there.grant()
    token = await one.token()
    await other.token()
    there.restart()
    one.doubt(token)
    assert (await there.vault.check(await other.token())).session == "s1"


async def test_a_driver_before_gets_none_and_is_told_so(there: There) -> None:
    await there.grant(2).token()
    with pytest.raises(CarpalError) as caught:
        await there.grant(1).token()
    assert caught.value.reason is Reason.STALE_EPOCH


async def test_an_agent_with_other_servers_has_another_grant(there: There) -> None:
    grant = there.grant()
    before = await grant.token()
    driver = grant._driver
    driver.transcript.agent = {**AGENT, "vault_ids": []}
    after = await grant.token()
    assert after != before
    assert (await there.vault.check(after)).vaults == ()
