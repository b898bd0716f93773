"""OAuth credentials among all others: what is enrolled is used, and what is refreshed is kept."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.identity import Identity, Role
from carpal.status import Reason
from carpal.v1 import vault_pb2 as pb
from tests.trust import trust
from tests.vault.oauth.server import AS_HOST
from tests.vault.oauth.test_enrol import enrolled, mcp
from tests.vault.oauth.world import World
from vault.credentials.desk import CredentialDesk
from vault.credentials.rows import Rows
from vault.credentials.uses import Uses
from vault.credentials.validate import validated
from vault.mcp.policy import server_policy
from vault.oauth.engine import Engine
from vault.oauth.kept import Kept, Refreshing
from vault.oauth.states import States

NOW = datetime.now(UTC)
OPERATOR = Identity("carpal.internal", Role.OPERATOR, "o", "default", "", NOW, NOW, 1)


class Granted:
    workspace = "default"
    credentials = ("linear",)
    vaults: tuple[str, ...] = ()
    session = "s1"
    agent = ""
    user = ""


class Vault:
    """What of the vault uses it."""

    def __init__(self, there: World) -> None:
        self.there = there
        self.rows = Rows(there.desk.kept.safe)
        self.desk = CredentialDesk(self.rows, lambda: datetime.now(UTC))
        self.engine = Engine(
            there.desk.kept.safe,
            there.desk.executor,
            Kept(self.rows),
            there.desk.guard,
            there.desk.audit,
        )
        self.uses = Uses(self.rows, there.desk.audit, self.do, Refreshing(self.engine))

    async def do(self, work: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.there.desk.executor, work)

    async def enrol(self, **policy: Any) -> None:
        made = await enrolled(self.there)
        create = partial(
            self.desk.create,
            OPERATOR,
            credential_id="linear",
            workspace="",
            vault_id="",
            display_name="",
            kind="mcp_oauth",
            policy=json.dumps({**made.policy, **policy}).encode(),
            secrets=made.secrets,
        )
        await self.do(create)

    async def state(self) -> str:
        """As an operator is shown it."""
        states = States(self.rows)
        return str(await self.do(lambda: states.shown(self.rows.get("default", "linear"))))

    async def doubt(self) -> None:
        """As after a backup was put back."""
        assert await self.do(States(self.rows).doubt) == 1

    async def tried(self) -> tuple[str, str, str]:
        row = self.rows.get("default", "linear")
        found = await validated(row, "x", self.uses, self.there.desk.guard)
        return found.verdict, found.step, found.refresh

    async def used(self, *, refused: bool = False) -> str:
        policy = server_policy("a", {"url": mcp(self.there)})
        async with self.uses.use(Granted(), policy, action="mcp.ping", actor="x") as use:
            if refused:
                assert await use.refused()
                return ""
            value: Any = use.headers[0][1]
            return str(value.secret.reveal().decode())


@pytest.fixture
async def vault(there: World) -> AsyncIterator[Vault]:
    made = Vault(there)
    yield made
    await made.engine.aclose()


async def test_what_is_enrolled_is_used_and_refreshed_at_its_end(vault: Vault) -> None:
    await vault.enrol()
    login = vault.there.login
    assert await vault.used() == login.access[-1]
    await vault.used(refused=True)
    assert await vault.used() == login.access[-1]
    assert len(login.posts) == 2, "the code, and one refresh"
    row = vault.rows.get("default", "linear")
    assert row.generation == 2
    assert row.policy["expires_at"] == pytest.approx(time.time() + 3600, abs=30)


async def test_one_that_has_ended_is_refreshed_before_it_is_used(vault: Vault) -> None:
    await vault.enrol(expires_at=time.time() - 1)
    first = vault.there.login.access[-1]
    assert await vault.used() == vault.there.login.access[-1] != first
    assert await vault.used() == vault.there.login.access[-1]


async def test_one_whose_consent_is_gone_says_so(vault: Vault) -> None:
    await vault.enrol(expires_at=time.time() - 1)
    vault.there.login.live.clear()
    with pytest.raises(CarpalError) as caught:
        await vault.used()
    assert caught.value.reason is Reason.CREDENTIAL_NEEDS_CONSENT


async def test_a_doubted_refresh_token_is_tried_once_and_a_token_with_time_left_serves_meanwhile(
    vault: Vault,
) -> None:
    await vault.enrol()
    login = vault.there.login
    access = login.access[-1]
    assert await vault.state() == "active"
    await vault.doubt()
    assert await vault.state() == "refresh_unknown"
    assert await vault.used() == access
    login.live.clear()  # it was spent after the backup was made
    assert await vault.tried() == ("invalid", "authenticate", "failed")
    assert await vault.state() == "needs_reauth"
    assert await vault.used() == access
    assert len(login.posts) == 2, "the code, and one try"


async def test_a_doubted_refresh_token_that_is_good_is_doubted_no_more(vault: Vault) -> None:
    await vault.enrol()
    await vault.doubt()
    assert await vault.tried() == ("invalid", "authenticate", "succeeded")  # it takes nobody
    assert await vault.state() == "active"


async def test_validating_refreshes_what_is_over_and_says_how_that_went(vault: Vault) -> None:
    await vault.enrol(expires_at=time.time() - 1)
    allowed = set(vault.there.desk.rule.ports)
    vault.there.desk.rule.ports.clear()
    assert await vault.tried() == ("unknown", "refresh", "connect_error")
    assert await vault.state() == "active"
    vault.there.desk.rule.ports |= allowed
    vault.engine._waits.paces.clear()  # the wait is over
    vault.there.login.live.clear()
    assert await vault.tried() == ("invalid", "refresh", "failed")


async def test_validating_what_is_over_and_cannot_be_refreshed_says_that(vault: Vault) -> None:
    await vault.enrol(expires_at=time.time() - 1, refresh=None)
    assert await vault.tried() == ("invalid", "refresh", "no_refresh_token")
    assert await vault.state() == "active"


async def test_v36_the_endpoint_is_bound_to_the_refresh_token(vault: Vault) -> None:
    await vault.enrol(expires_at=time.time() - 1)
    row = vault.rows.get("default", "linear")
    elsewhere = json.dumps(row.policy).replace(
        f"{AS_HOST}:{vault.there.port}/token", "evil.a.test/t"
    )
    vault.rows.safe.database.execute("UPDATE credentials SET policy = ?", (elsewhere.encode(),))
    with pytest.raises(CarpalError) as caught:
        await vault.used()
    assert caught.value.reason is Reason.CREDENTIAL_CORRUPT


async def test_the_service_refreshes_what_an_operator_put_in(there: World, tmp_path: Path) -> None:
    made = await enrolled(there)
    first = there.login.access[-1]
    async with trust(tmp_path / "trust") as domain:
        domain.service._guard = there.desk.guard
        operator = await domain.vault()
        ended = {**made.policy, "expires_at": time.time() - 1}
        request = pb.CreateCredentialRequest(
            credential_id="linear",
            kind="mcp_oauth",
            policy=json.dumps(ended).encode(),
            secrets=made.secrets,
        )
        await operator.CreateCredential(request, timeout=10)
        policy = server_policy("a", {"url": mcp(there)})
        uses = domain.service.uses()
        async with uses.use(Granted(), policy, action="mcp.ping", actor="x") as use:
            value: Any = use.headers[0][1]
        assert value.secret.reveal().decode() == there.login.access[-1] != first
        listed = await operator.ListCredentials(pb.ListCredentialsRequest(), timeout=10)
        [info] = listed.credentials
        assert info.generation == 2
