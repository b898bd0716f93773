"""A credential whose value lies in a secret manager, as an operator and a session meet it."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import vault_pb2 as pb
from tests.tls_ca import Authority
from tests.trust import trust
from tests.vault.audit.desk import lines
from tests.vault.credentials.test_rpc import bearer, create, refused
from tests.vault.grants.test_end_to_end import There
from tests.vault.grants.test_grants import Vault
from tests.vault.guard.upstream import HOST as MANAGER_HOST
from tests.vault.guard.upstream import Asked, Names, Widened, reply, says, upstream
from tests.vault.mcp.servers import Server
from tests.vault.mcp.world import CANARY, HOST, LIMIT, served
from tests.vault.sources.manager import DELETED, TOKEN, Manager, settings
from vault.authority.ca import Claims
from vault.guard.transport import Guard
from vault.mcp_listener import serve_mcp
from vault.sources.configured import configured

SOURCES = {"token": {"source": "corp", "ref": "agents/tracker#token"}}


@dataclass
class World(There):
    """An MCP server, a secret manager, and a vault that knows both."""

    manager: Manager

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}/mcp"

    async def add(self, credential_id: str = "c1", **policy: Any) -> pb.CredentialInfo:
        said = {"mcp_server_url": self.url, "sources": SOURCES, **policy}
        request = bearer(credential_id, policy=json.dumps(said).encode(), secrets={})
        return await create(await self.domain.vault(), request)

    async def reason(self, call: str = "c1") -> str:
        reply = (await self.call(await self.grant(), call)).json()
        return str(reply["error"]["data"]["reason"])

    def audited(self) -> list[dict[str, Any]]:
        assert self.domain.service.door.parts.audit.flush()
        return lines(self.domain.files.audit)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[World]:
    authority, server = Authority(tmp_path), Server(CANARY)
    manager = Manager({"agents/tracker": [{"token": CANARY}]})
    async with trust(tmp_path / "state") as domain, AsyncExitStack() as stack:
        port = await stack.enter_async_context(served(authority, server))
        managing = await stack.enter_async_context(upstream(authority, manager, MANAGER_HOST))
        domain.service._guard = Guard(
            rule=Widened([port, managing.port]),
            resolver=Names({HOST: [["127.0.0.1"]], MANAGER_HOST: [["127.0.0.1"]]}),
            authorities=authority.bundle.read_text(),
        )
        domain.service._desk.sources = configured(
            {
                "corp": {
                    "plugin": "hashicorp",
                    "workspaces": ["default"],
                    "paths": ["agents/"],
                    **settings(tmp_path, managing.port),
                }
            }
        )
        vault = domain.identity(Role.VAULT, "vault")
        address = await stack.enter_async_context(serve_mcp("127.0.0.1:0", vault, domain.service))
        yield World(Vault(domain), server, port, address, stack, manager)


async def test_a_session_uses_a_value_that_the_vault_never_keeps(there: World) -> None:
    made = await there.add()
    assert json.loads(made.policy)["sources"] == SOURCES
    assert there.manager.seen == [], "what is put in is where it lies"
    assert await there.add() == made
    result = await there.call(await there.grant(), "c1")
    assert result.json()["result"]["content"] == [{"type": "text", "text": "5"}]
    assert {seen["authorization"] for seen in there.server.seen} == {f"Bearer {CANARY}"}
    [told] = [each for each in there.audited() if each.get("call") == "c1" and "source" in each]
    assert (told["what"], told["credential"], told["source"]) == ("intent", "c1", "corp")
    for path in there.domain.files.state.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
            assert TOKEN.encode() not in path.read_bytes(), path


async def test_v37_what_its_owner_rotates_is_used_from_the_next_request_on(there: World) -> None:
    there.manager.entries["agents/tracker"] = [{"token": "tok-not-the-right-one"}]
    await there.add()
    token = await there.grant()
    first = (await there.call(token, "c1")).json()
    assert first["error"]["data"]["reason"] == "AUTHENTICATION_FAILED"
    there.manager.entries["agents/tracker"].append({"token": CANARY})
    assert "result" in (await there.call(token, "c2")).json()
    there.manager.entries["agents/tracker"].append({"token": "tok-not-the-right-one"})
    assert "error" in (await there.call(token, "c3")).json()


async def test_v37_a_value_that_is_replaced_meanwhile_is_tried_once_more(there: World) -> None:
    await there.add()
    values = [b"tok-not-the-right-one", CANARY.encode()]

    async def one_after_another(asked: Asked, writer: asyncio.StreamWriter) -> None:
        entry = {"data": {"token": values.pop(0).decode()}, "metadata": {"version": 1}}
        writer.write(reply(json.dumps({"data": entry}).encode()))
        if not values:
            there.manager.instead = None
        await writer.drain()

    there.manager.instead = one_after_another
    assert "result" in (await there.call(await there.grant(), "c1")).json()


async def test_a_server_that_takes_no_value_says_so_also_when_no_other_can_be_fetched(
    there: World,
) -> None:
    there.manager.entries["agents/tracker"] = [{"token": "tok-not-the-right-one"}]
    await there.add()

    async def once(asked: Asked, writer: asyncio.StreamWriter) -> None:
        there.manager.instead = says(reply(b"{}", status="503 Sealed"))
        entry = {"data": {"token": "tok-not-the-right-one"}, "metadata": {"version": 1}}
        writer.write(reply(json.dumps({"data": entry}).encode()))
        await writer.drain()

    there.manager.instead = once
    assert await there.reason() == "AUTHENTICATION_FAILED"
    assert "credential_not_fetched" in {each.get("action") for each in there.audited()}


async def test_v28_a_server_that_sends_the_value_back_has_it_struck_out(there: World) -> None:
    await there.add()
    params = {"name": "echo", "arguments": {"text": CANARY}}
    asked = there.request(await there.grant(), "tools/call", params, **{"carpal/callId": "c1"})
    said = await (await there.http()).post(**asked)
    assert CANARY not in said.text
    assert "secret_reflected" in {each.get("action") for each in there.audited()}


async def test_what_the_manager_does_not_give_is_told_as_a_code_and_audited_in_full(
    there: World,
) -> None:
    await there.add()
    there.manager.instead = says(reply(f'{{"errors":["{CANARY}"]}}'.encode(), status="403 No"))
    said = await there.call(await there.grant(), "c1")
    assert said.json()["error"]["data"]["reason"] == "CREDENTIAL_UNAVAILABLE"
    for word in ("403", MANAGER_HOST, "agents", "corp", CANARY):
        assert word not in said.text.replace(HOST, ""), word
    assert there.server.added == []
    [told] = [each for each in there.audited() if each.get("action") == "credential_not_fetched"]
    assert (told["credential"], told["source"]) == ("c1", "corp")
    assert told["reason"].startswith("refused: https://")
    assert told["reason"].endswith("it answered 403")
    assert CANARY not in json.dumps(there.audited())


VERDICTS = {
    "as it should be": (None, ("valid", "", "")),
    "403": ("403 Forbidden", ("invalid", "fetch", "refused")),
    "404": ("404 Not Found", ("invalid", "fetch", "missing")),
    "503": ("503 Unavailable", ("unknown", "fetch", "unavailable")),
    "307": ("307 Elsewhere", ("unknown", "fetch", "malformed")),
}


@pytest.mark.parametrize(("status", "verdict"), VERDICTS.values(), ids=VERDICTS)
async def test_validating_says_that_it_ended_at_the_fetch(
    there: World, status: str | None, verdict: tuple[str, str, str]
) -> None:
    await there.add()
    if status:
        there.manager.instead = says(reply(b"{}", status=status))
    ask = pb.ValidateCredentialRequest(credential_id="c1")
    told = await (await there.domain.vault()).ValidateCredential(ask, timeout=LIMIT)
    assert (told.verdict, told.step, told.detail) == verdict


async def test_validating_says_what_is_wrong_with_the_value_or_its_place(there: World) -> None:
    await there.add()
    operator = await there.domain.vault()
    ask = pb.ValidateCredentialRequest(credential_id="c1")
    versions = there.manager.entries["agents/tracker"]
    for entry, detail in (
        (DELETED, "deleted"),
        ({"other": CANARY}, "missing"),
        ({"token": "short"}, "unusable"),
    ):
        versions.append(entry)
        told = await operator.ValidateCredential(ask, timeout=LIMIT)
        assert (told.verdict, told.step, told.detail) == ("invalid", "fetch", detail)
    there.domain.service._desk.sources = configured({})
    told = await operator.ValidateCredential(ask, timeout=LIMIT)
    assert (told.verdict, told.detail) == ("invalid", "not_configured")


async def test_a_variable_whose_value_is_fetched_is_tried_as_far_as_that(there: World) -> None:
    policy = {
        "secret_name": "API_KEY",
        "networking": {"type": "limited", "allowed_hosts": ["api.a.com"]},
        "sources": {"secret_value": {"source": "corp", "ref": "agents/tracker#token"}},
    }
    request = bearer(kind="environment_variable", policy=json.dumps(policy).encode(), secrets={})
    operator = await there.domain.vault()
    await create(operator, request)
    ask = pb.ValidateCredentialRequest(credential_id="c1")
    told = await operator.ValidateCredential(ask, timeout=LIMIT)
    assert (told.verdict, told.step) == ("unknown", "reach")
    there.manager.entries.clear()
    told = await operator.ValidateCredential(ask, timeout=LIMIT)
    assert (told.verdict, told.step, told.detail) == ("invalid", "fetch", "missing")


async def test_no_caller_names_a_host_a_command_or_another_path(there: World) -> None:
    operator = await there.domain.vault()
    for sources in (
        {"token": {"source": "/bin/sh", "ref": "agents/tracker#token"}},
        {"token": {"source": "corp", "ref": "finance/all#token"}},
        {"token": {"source": "corp", "ref": "agents/../finance#token"}},
        {"token": {"source": "corp", "ref": "agents/a?x=1#token"}},
        {"token": {"source": "corp", "ref": "agents/a#t", "argv": ["/bin/sh"]}},
        {"token": {"address": "https://evil.com", "ref": "agents/a#t"}},
        {"client_secret": {"source": "corp", "ref": "agents/a#t"}},
        ["token"],
    ):
        policy = json.dumps({"mcp_server_url": there.url, "sources": sources}).encode()
        request = bearer(policy=policy, secrets={})
        assert await refused(operator, "CreateCredential", request) is Reason.INVALID_FIELD
    evil = await there.domain.vault(there.domain.issue(Claims(Role.OPERATOR, "eve", "evil")))
    policy = json.dumps({"mcp_server_url": "https://evil.com/mcp", "sources": SOURCES}).encode()
    request = bearer(policy=policy, secrets={})
    assert await refused(evil, "CreateCredential", request) is Reason.INVALID_FIELD
    assert there.manager.seen == []


async def test_a_secret_lies_here_or_there_for_good(there: World) -> None:
    operator = await there.domain.vault()
    said = {"mcp_server_url": there.url, "sources": SOURCES}
    both = bearer(policy=json.dumps(said).encode())
    assert await refused(operator, "CreateCredential", both) is Reason.INVALID_FIELD
    await there.add()
    put = pb.UpdateCredentialRequest(
        credential_id="c1", expected_generation=1, secrets={"token": b"tok-put-in-here"}
    )
    assert await refused(operator, "UpdateCredential", put) is Reason.INVALID_FIELD
    here = pb.UpdateCredentialRequest(
        credential_id="c1",
        expected_generation=1,
        policy=b'{"sources": {}}',
        secrets={"token": b"tok-put-in-here"},
    )
    assert await refused(operator, "UpdateCredential", here) is Reason.INVALID_FIELD
    moved = {"sources": {"token": {"source": "corp", "ref": "agents/moved#token@1"}}}
    there.manager.entries["agents/moved"] = [{"token": CANARY}, {"token": "tok-the-next-one"}]
    move = pb.UpdateCredentialRequest(
        credential_id="c1", expected_generation=1, policy=json.dumps(moved).encode()
    )
    await operator.UpdateCredential(move, timeout=LIMIT)
    assert "result" in (await there.call(await there.grant(), "c1")).json()
    assert there.manager.seen[-1].endswith("agents/moved?version=1")


@pytest.mark.parametrize("column", ["url", "reference", "source taken away"])
async def test_v06_whoever_changes_it_in_the_database_has_nothing_fetched(
    there: World, column: str
) -> None:
    await there.add()
    other = {"token": {"source": "corp", "ref": "agents/other#token"}}
    there.manager.entries["agents/other"] = [{"token": CANARY}]
    policy: dict[str, Any] = {"mcp_server_url": there.url, "private_networks": []}
    if column == "url":
        policy |= {"private_networks": ["10.0.0.0/8"], "sources": SOURCES}
    elif column == "reference":
        policy |= {"sources": other}
    with sqlite3.connect(there.domain.files.store) as database:
        encoded = json.dumps(policy, sort_keys=True, separators=(",", ":")).encode()
        database.execute("UPDATE credentials SET policy = ?", (encoded,))
    assert await there.reason() == "CREDENTIAL_UNAVAILABLE"
    assert there.manager.seen == []
    assert "credential_corrupt" in {each.get("action") for each in there.audited()}


async def test_what_is_archived_is_fetched_no_more(there: World) -> None:
    await there.add()
    token, operator = await there.grant(), await there.domain.vault()
    await operator.ArchiveCredential(pb.ArchiveCredentialRequest(credential_id="c1"), timeout=LIMIT)
    said = (await there.call(token, "c1")).json()
    assert said["error"]["data"]["reason"] == "CREDENTIAL_UNAVAILABLE"
    assert there.manager.seen == []


async def test_calls_that_come_while_it_is_fetched_share_the_fetch(there: World) -> None:
    await there.add()
    token = await there.grant()
    await there.call(token, "c0")
    there.manager.seen.clear()
    there.manager.asked.clear()
    there.manager.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(there.call(token, f"c{n}")) for n in range(1, 6)]
        flights = there.domain.service._desk.sources._flights
        async with asyncio.timeout(LIMIT):
            await there.manager.asked.wait()
            while sum(each.waiting for each in flights.values()) < 5:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        there.manager.gate.set()
    assert all("result" in each.result().json() for each in calls)
    assert len(there.manager.seen) == 1


async def test_v32_without_an_audit_nothing_is_fetched(there: World) -> None:
    await there.add()
    token = await there.grant()
    there.domain.service.door.parts.audit.close()
    said = (await there.call(token, "c1")).json()
    assert said["error"]["data"]["reason"] == "UNAVAILABLE"
    assert there.manager.seen == []
