"""Credentials over real mutual TLS: secrets go in, and nothing gives one out."""

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import vault_pb2 as pb
from tests.trust import Trust, trust
from tests.vault.audit.desk import lines
from vault.authority.ca import Claims
from vault.credentials.uses import Uses
from vault.mcp.policy import server_policy

CANARY = b"tok-CANARY-55b1f0c2d9"
URL = "https://mcp.a.com/mcp"
TIMEOUT = 10


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "state") as served:
        yield served


def bearer(credential_id: str = "c1", **changes: Any) -> pb.CreateCredentialRequest:
    values: dict[str, Any] = {
        "credential_id": credential_id,
        "kind": "static_bearer",
        "display_name": "the tracker",
        "policy": json.dumps({"mcp_server_url": URL}).encode(),
        "secrets": {"token": CANARY},
    }
    return pb.CreateCredentialRequest(**{**values, **changes})


async def create(stub: Any, request: pb.CreateCredentialRequest) -> pb.CredentialInfo:
    with rpc_errors("the vault"):
        answer: pb.CreateCredentialResponse = await stub.CreateCredential(request, timeout=TIMEOUT)
    return answer.credential


async def refused(stub: Any, method: str, request: object) -> Reason:
    with pytest.raises(CarpalError) as caught, rpc_errors("the vault"):
        await getattr(stub, method)(request, timeout=TIMEOUT)
    assert CANARY.decode() not in repr(caught.value.__dict__)
    return caught.value.reason


@dataclass
class Granted:
    workspace: str = "default"
    credentials: tuple[str, ...] = ("c1",)
    vaults: tuple[str, ...] = ()
    session: str = "s1"
    agent: str = ""
    user: str = ""


async def used(
    domain: Trust, url: str = URL, grant: Granted | None = None
) -> tuple[bytes | None, str]:
    """The token that a request of a session would have, and its generation."""
    parts, service = domain.service.door.parts, domain.service
    uses = Uses(parts.desk.rows, parts.audit, service._do)
    policy = server_policy("a", {"url": url})
    async with uses.use(grant or Granted(), policy, action="mcp.ping", actor="spiffe://x") as use:
        headers: Any = use.headers
        value = headers[0][1].secret.reveal() if headers else None
        return value, use.generation


async def test_a_credential_is_created_once_and_shows_no_secret(domain: Trust) -> None:
    operator = await domain.vault()
    made = await create(operator, bearer())
    assert (made.vault_id, made.generation, made.state) == ("default", 1, "active")
    assert await create(operator, bearer()) == made
    assert CANARY not in made.SerializeToString()
    listed = await operator.ListCredentials(pb.ListCredentialsRequest(), timeout=TIMEOUT)
    assert list(listed.credentials) == [made]
    other = bearer(secrets={"token": CANARY + b"x"})
    assert await refused(operator, "CreateCredential", other) is Reason.ID_REUSED
    for path in (domain.files.folder).rglob("*"):
        if path.is_file():
            assert CANARY not in path.read_bytes(), path


async def test_a_vault_has_one_credential_for_a_server(domain: Trust) -> None:
    operator = await domain.vault()
    await create(operator, bearer())
    same = json.dumps({"mcp_server_url": "https://MCP.A.com./mcp"}).encode()
    again = bearer("c2", policy=same)
    assert await refused(operator, "CreateCredential", again) is Reason.ID_REUSED
    await create(operator, bearer("c2", vault_id="other"))


async def test_of_a_grants_vaults_the_first_that_has_a_credential_for_the_server_gives_it(
    domain: Trust,
) -> None:
    operator, grant = await domain.vault(), Granted(credentials=(), vaults=("none", "two", "one"))
    assert await used(domain, grant=grant) == (None, "none")
    for name in ("one", "two"):
        await create(operator, bearer(name, vault_id=name))
    assert await used(domain, grant=grant) == (CANARY, "two/two/1")
    await operator.ArchiveCredential(
        pb.ArchiveCredentialRequest(credential_id="two"), timeout=TIMEOUT
    )
    assert await used(domain, grant=grant) == (CANARY, "one/one/1")
    assert await used(domain, grant=Granted(credentials=())) == (None, "none")


async def test_a_vault_has_at_most_twenty(domain: Trust) -> None:
    operator = await domain.vault()
    for number in range(20):
        policy = json.dumps({"mcp_server_url": f"https://mcp-{number}.a.com/mcp"}).encode()
        await create(operator, bearer(f"c{number}", policy=policy))
    assert await refused(operator, "CreateCredential", bearer("more")) is Reason.INVALID_FIELD
    archived = pb.ArchiveCredentialRequest(credential_id="c3")
    await operator.ArchiveCredential(archived, timeout=TIMEOUT)
    await create(operator, bearer("more"))


async def test_another_workspace_sees_none_of_it(domain: Trust) -> None:
    await create(await domain.vault(), bearer())
    stranger = await domain.vault(domain.issue(Claims(Role.OPERATOR, "eve", "evil")))
    listed = await stranger.ListCredentials(pb.ListCredentialsRequest(), timeout=TIMEOUT)
    assert list(listed.credentials) == []
    update = pb.UpdateCredentialRequest(credential_id="c1", expected_generation=1)
    assert await refused(stranger, "UpdateCredential", update) is Reason.CREDENTIAL_NOT_FOUND
    archive = pb.ArchiveCredentialRequest(credential_id="c1")
    assert await refused(stranger, "ArchiveCredential", archive) is Reason.CREDENTIAL_NOT_FOUND
    mine = pb.ListCredentialsRequest(workspace="default")
    assert await refused(stranger, "ListCredentials", mine) is Reason.ROLE_NOT_ALLOWED


async def test_a_brain_puts_no_credential_in(domain: Trust) -> None:
    brain = await domain.vault(domain.identity(Role.BRAIN, "brain-1"))
    assert await refused(brain, "CreateCredential", bearer()) is Reason.ROLE_NOT_ALLOWED


async def test_v37_what_is_rotated_is_used_from_the_next_request_on(domain: Trust) -> None:
    operator = await domain.vault()
    await create(operator, bearer())
    before = await used(domain)
    update = pb.UpdateCredentialRequest(
        credential_id="c1", expected_generation=1, secrets={"token": b"tok-second-4451"}
    )
    answer = await operator.UpdateCredential(update, timeout=TIMEOUT)
    assert answer.credential.generation == 2
    assert (await used(domain))[0] == b"tok-second-4451"
    assert (await used(domain))[1] != before[1]
    assert await refused(operator, "UpdateCredential", update) is Reason.VERSION_CONFLICT


async def test_v37_a_server_that_took_none_is_asked_again_only_if_there_is_another(
    domain: Trust,
) -> None:
    operator = await domain.vault()
    await create(operator, bearer())
    parts, service = domain.service.door.parts, domain.service
    uses = Uses(parts.desk.rows, parts.audit, service._do)
    policy = server_policy("a", {"url": URL})
    async with uses.use(Granted(), policy, action="mcp.ping", actor="spiffe://x") as use:
        assert not await use.refused()
        update = pb.UpdateCredentialRequest(
            credential_id="c1", expected_generation=1, secrets={"token": b"tok-second-4451"}
        )
        await operator.UpdateCredential(update, timeout=TIMEOUT)
        assert await use.refused()


async def test_a_change_of_the_policy_takes_the_secrets_along(domain: Trust) -> None:
    operator = await domain.vault()
    await create(operator, bearer())
    policy = json.dumps({"private_networks": ["10.1.0.0/16"]}).encode()
    update = pb.UpdateCredentialRequest(credential_id="c1", expected_generation=1, policy=policy)
    await operator.UpdateCredential(update, timeout=TIMEOUT)
    assert (await used(domain))[0] == CANARY


async def test_archiving_destroys_the_secret_and_keeps_the_name(domain: Trust) -> None:
    operator = await domain.vault()
    await create(operator, bearer())
    archive = pb.ArchiveCredentialRequest(credential_id="c1")
    first = await operator.ArchiveCredential(archive, timeout=TIMEOUT)
    assert first.credential.state == "archived"
    assert await operator.ArchiveCredential(archive, timeout=TIMEOUT) == first
    rows = domain.service.door.parts.desk.rows
    row = rows.find("default", "c1")
    assert row is not None
    assert await domain.service._do(lambda: rows.secrets(row)) == {}
    with pytest.raises(CarpalError) as caught:
        await used(domain)
    assert caught.value.reason is Reason.CREDENTIAL_NOT_FOUND
    await create(operator, bearer("c2"))


@pytest.mark.parametrize(
    "url",
    ["https://mcp.a.com.evil.com/mcp", "https://evilmcp.a.com/mcp", "https://mcp.a.com:8443/mcp"],
)
async def test_v17_a_server_that_only_looks_like_it_is_sent_no_credential(
    domain: Trust, url: str
) -> None:
    await create(await domain.vault(), bearer())
    assert await used(domain, url) == (None, "none")
    assert (await used(domain, "https://MCP.A.COM./mcp"))[0] == CANARY


async def test_v06_a_policy_that_is_widened_in_the_database_opens_no_secret(domain: Trust) -> None:
    await create(await domain.vault(), bearer())
    evil = json.dumps({"mcp_server_url": "https://evil.com/mcp", "private_networks": []}).encode()
    with sqlite3.connect(domain.files.store) as database:
        database.execute("UPDATE credentials SET policy = ?", (evil,))
    with pytest.raises(CarpalError) as caught:
        await used(domain, "https://evil.com/mcp")
    assert caught.value.reason is Reason.CREDENTIAL_CORRUPT


async def test_v02_two_secrets_that_are_swapped_open_in_neither_place_and_a_third_works(
    domain: Trust,
) -> None:
    operator = await domain.vault()
    urls = {each: f"https://{each}.a.com/mcp" for each in ("c1", "c2", "c3")}
    for name, url in urls.items():
        policy = json.dumps({"mcp_server_url": url}).encode()
        secrets = {"token": CANARY + name.encode()}
        await create(operator, bearer(name, policy=policy, secrets=secrets))
    with sqlite3.connect(domain.files.store) as database:
        held = dict(database.execute("SELECT id, wrapped FROM sealed WHERE kind = 'credential'"))
        blobs = dict(database.execute("SELECT id, blob FROM sealed WHERE kind = 'credential'"))
        for here, there in (("c1", "c2"), ("c2", "c1")):
            database.execute(
                "UPDATE sealed SET wrapped = ?, blob = ? WHERE kind = 'credential' AND id = ?",
                (held[there], blobs[there], here),
            )

    uses, grant = domain.service.uses(), Granted(credentials=tuple(urls))
    for name in ("c1", "c2"):
        policy_of = server_policy("a", {"url": urls[name]})
        with pytest.raises(CarpalError) as caught:
            async with uses.use(grant, policy_of, action="mcp.ping", actor="spiffe://x"):
                raise AssertionError(name)
        assert caught.value.reason is Reason.CREDENTIAL_CORRUPT
    policy_of = server_policy("a", {"url": urls["c3"]})
    async with uses.use(grant, policy_of, action="mcp.ping", actor="spiffe://x") as use:
        headers: Any = use.headers
        assert headers[0][1].secret.reveal() == CANARY + b"c3"
    assert domain.service.door.parts.audit.flush()
    seen = [
        each for each in lines(domain.files.audit) if each.get("action") == "credential_corrupt"
    ]
    assert [each["credential"] for each in seen] == ["c1", "c2"]


async def test_v32_without_an_audit_no_credential_is_opened(domain: Trust) -> None:
    await create(await domain.vault(), bearer())
    opened: list[object] = []
    rows = domain.service.door.parts.desk.rows
    secrets = rows.secrets

    def noted(row: Any) -> dict[str, bytes]:
        opened.append(row)
        return secrets(row)

    rows.secrets = noted  # type: ignore[method-assign]
    domain.service.door.parts.audit.close()
    with pytest.raises(CarpalError) as caught:
        await used(domain)
    assert caught.value.reason is Reason.AUDIT_NOT_WRITTEN
    assert opened == []
