"""An operator's credential, a driver's grant, a brain's call: through the listeners of a vault."""

import asyncio
import fcntl
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from carpal.identity import Role
from carpal.v1 import vault_pb2 as pb
from tests.tls_ca import Authority
from tests.trust import Trust, trust
from tests.vault.audit.desk import lines
from tests.vault.credentials.test_rpc import bearer, create
from tests.vault.grants.test_grants import Vault
from tests.vault.guard.upstream import Names, Widened
from tests.vault.mcp.servers import Server
from tests.vault.mcp.world import CANARY, HOST, LIMIT, served
from vault.guard.transport import Guard
from vault.mcp.wire import MODERN, VERSION
from vault.mcp_listener import serve_mcp


@dataclass
class There:
    """All of it."""

    vault: Vault
    server: Server
    port: int
    address: str
    stack: AsyncExitStack

    @property
    def domain(self) -> Trust:
        return self.vault.domain

    async def credential(self, token: str = CANARY) -> None:
        policy = json.dumps({"mcp_server_url": f"https://{HOST}:{self.port}/mcp"}).encode()
        secrets = {"token": token.encode()}
        await create(await self.domain.vault(), bearer(policy=policy, secrets=secrets))

    async def grant(self, epoch: int = 1, brain: str = "brain-1") -> str:
        servers = {"a": {"url": f"https://{HOST}:{self.port}/mcp", "allow": ["*"]}}
        policy = json.dumps({"mcp": servers}).encode()
        return await self.vault.give(self.vault.ticket(epoch, brain), brain, policy=policy)

    async def http(self, brain: str = "brain-1") -> httpx2.AsyncClient:
        files = self.vault.files[brain]
        context = ssl.create_default_context(cadata=files.ca.read_text())
        context.load_cert_chain(files.certificate, files.key)
        context.check_hostname = False  # it dials an address; the CA is this test's alone
        client = httpx2.AsyncClient(verify=context, timeout=LIMIT, trust_env=False)
        return await self.stack.enter_async_context(client)

    def request(self, token: str, method: str, params: dict[str, Any], **meta: Any) -> Any:
        said = {**params, "_meta": {VERSION: MODERN, **meta}}
        return {
            "url": f"https://{self.address}/mcp/a",
            "headers": {
                "authorization": f"Bearer {token}",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
            },
            "json": {"jsonrpc": "2.0", "id": 1, "method": method, "params": said},
        }

    async def call(self, token: str, call: str, brain: str = "brain-1") -> httpx2.Response:
        params = {"name": "add", "arguments": {"a": 2, "b": 3}}
        asked = self.request(token, "tools/call", params, **{"carpal/callId": call})
        client = await self.http(brain)
        return await client.post(**asked)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[There]:
    authority, server = Authority(tmp_path), Server(CANARY)
    async with trust(tmp_path / "state") as domain, AsyncExitStack() as stack:
        port = await stack.enter_async_context(served(authority, server))
        domain.service._guard = Guard(
            rule=Widened([port]),
            resolver=Names({HOST: [["127.0.0.1"]]}),
            authorities=authority.bundle.read_text(),
        )
        vault = domain.identity(Role.VAULT, "vault")
        address = await stack.enter_async_context(serve_mcp("127.0.0.1:0", vault, domain.service))
        yield There(Vault(domain), server, port, address, stack)


async def test_a_brain_uses_a_credential_that_it_never_has(there: There) -> None:
    await there.credential()
    reply = await there.call(await there.grant(), "c1")
    assert reply.json()["result"]["content"] == [{"type": "text", "text": "5"}]
    assert {seen["authorization"] for seen in there.server.seen} == {f"Bearer {CANARY}"}
    assert CANARY not in reply.text
    assert there.domain.service.door.parts.audit.flush()
    told = [each for each in lines(there.domain.files.audit) if each.get("call") == "c1"]
    assert [(each["credential"], each["generation"]) for each in told] == [("c1", 1)]
    for path in there.domain.files.state.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path


async def test_v12_a_grant_taken_from_a_brain_is_useless_to_another(there: There) -> None:
    await there.credential()
    token = await there.grant()
    stolen = await there.call(token, "c1", "brain-2")
    nothing = await there.call("avs_mcp_nothing", "c2", "brain-2")
    assert (stolen.status_code, stolen.content) == (403, b'{"error":{"reason":"GRANT_REFUSED"}}')
    assert (nothing.status_code, nothing.content) == (stolen.status_code, stolen.content)
    assert there.server.added == []


async def test_v37_a_rotation_reaches_a_session_that_runs(there: There) -> None:
    await there.credential("tok-not-the-right-one")
    token = await there.grant()
    assert (await there.call(token, "c1")).json()["error"]["data"]["reason"] == (
        "AUTHENTICATION_FAILED"
    )
    operator = await there.domain.vault()
    update = pb.UpdateCredentialRequest(
        credential_id="c1", expected_generation=1, secrets={"token": CANARY.encode()}
    )
    await operator.UpdateCredential(update, timeout=LIMIT)
    assert "result" in (await there.call(token, "c2")).json()


@pytest.mark.parametrize("end", ["revoked", "taken over"])
async def test_v14_a_stream_that_goes_on_ends_within_five_seconds_of_its_grant(
    there: There, end: str
) -> None:
    await there.credential()
    token = await there.grant()
    meta = {"carpal/callId": "c1", "progressToken": "p"}
    params = {"name": "slow", "arguments": {}}
    asked = there.request(token, "tools/call", params, **meta)
    client = await there.http()
    async with client.stream("POST", **asked) as reply:
        parts = reply.aiter_bytes()
        await anext(parts)  # it is under way
        async with asyncio.timeout(5):
            if end == "revoked":
                operator = await there.domain.vault()
                await operator.RevokeSession(
                    pb.RevokeSessionRequest(session_id="s1"), timeout=LIMIT
                )
            else:
                await there.grant(2, "brain-2")
            rest = b"".join([part async for part in parts])
    assert b'"GRANT_ENDED"' in rest


async def test_a_credential_is_tried_as_a_session_would_use_it(there: There) -> None:
    await there.credential()
    operator = await there.domain.vault()
    ask = pb.ValidateCredentialRequest(credential_id="c1")
    told = await operator.ValidateCredential(ask, timeout=LIMIT)
    assert (told.verdict, told.step, told.detail) == ("valid", "", "")
    assert there.server.added == []
    update = pb.UpdateCredentialRequest(
        credential_id="c1", expected_generation=1, secrets={"token": b"tok-not-the-right-one"}
    )
    await operator.UpdateCredential(update, timeout=LIMIT)
    told = await operator.ValidateCredential(ask, timeout=LIMIT)
    assert (told.verdict, told.step) == ("invalid", "authenticate")


async def test_a_credential_whose_server_is_not_reached_is_neither_good_nor_bad(
    there: There,
) -> None:
    operator = await there.domain.vault()
    policy = json.dumps({"mcp_server_url": "https://nobody.a.test/mcp"}).encode()
    await create(operator, bearer(policy=policy))
    ask = pb.ValidateCredentialRequest(credential_id="c1")
    told = await operator.ValidateCredential(ask, timeout=LIMIT)
    assert (told.verdict, told.step) == ("unknown", "reach")


async def test_v02_a_credential_whose_policy_is_damaged_harms_no_other_of_its_vault(
    there: There,
) -> None:
    await there.credential()
    other = b'{"mcp_server_url": "https://b.a.com/mcp"}'
    await create(await there.domain.vault(), bearer("c2", policy=other))
    safe = there.domain.service.door.parts.opened.safe
    with safe.database.transaction():
        safe.database.execute("UPDATE credentials SET policy = x'7b' WHERE credential_id = 'c2'")
    servers = {"a": {"url": f"https://{HOST}:{there.port}/mcp", "allow": ["*"]}}
    policy = json.dumps({"mcp": servers}).encode()
    by_vault = await there.vault.give(
        there.vault.ticket(), grant_id="g2", policy=policy, credential_ids=[], vault_ids=["default"]
    )
    for call, token in (("k1", await there.grant()), ("k2", by_vault)):
        assert "result" in (await there.call(token, call)).json(), call


async def test_v32_an_audit_that_is_stuck_is_no_silence_of_the_servers(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent: a brain that took it for the server's would say that it may have been."""
    await there.credential()
    token = await there.grant()
    monkeypatch.setattr("vault.audit.audit.WAIT", 0.2)
    held = (there.domain.files.audit / "audit.lock").open()
    fcntl.flock(held, fcntl.LOCK_EX)  # as another writer whose disk stands still
    try:
        reply = await there.call(token, "k1")
    finally:
        held.close()
    assert reply.json()["error"]["data"]["reason"] == "UNAVAILABLE"
    assert there.server.added == []
