"""Tokens that say which agent asks, verified by what the vault published, and by PyJWT."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import jwt
import pytest

from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.signed import sign
from carpal.status import Reason
from carpal.v1 import types_pb2
from carpal.v1 import vault_pb2 as pb
from tests.tls_ca import Authority
from tests.trust import trust
from tests.vault.audit.desk import lines
from tests.vault.credentials.test_rpc import create
from tests.vault.grants.test_end_to_end import There
from tests.vault.grants.test_grants import Vault
from tests.vault.guard.upstream import Names, Widened
from tests.vault.mcp.servers import Server, said
from tests.vault.mcp.world import HOST, LIMIT, served
from tests.vault.test_cli import carpal_vault
from vault.guard.targets import Target
from vault.guard.transport import Guard
from vault.issuer import issuer
from vault.issuer.documents import documents
from vault.issuer.keys import KNOWN, LIFE, PUBLISHED, SKEW, Keys, key, read, written
from vault.issuer.tokens import Subject, token
from vault.mcp_listener import serve_mcp

ISSUER = "https://id.example.com/carpal"
HERE = Target.parse("https://mcp.a.test:8443/mcp")


@dataclass
class Verifying:
    """A server that lets in whoever shows a token that the hosted documents prove."""

    hosted: Path
    inner: Server
    origin: str = ""
    claims: list[dict[str, Any]] = field(default_factory=list)
    kids: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            shown = headers.get("authorization", "").removeprefix("Bearer ")
            try:
                self.claims.append(verified(self.hosted, shown, self.origin))
            except jwt.PyJWTError as error:
                self.problems.append(type(error).__name__)
                await said(send, 401, b"who?")
                return
            self.shown.append(shown)
            self.kids.append(jwt.get_unverified_header(shown)["kid"])
            self.inner.token = shown
        await self.inner(scope, receive, send)


def verified(hosted: Path, shown: str, origin: str, **more: Any) -> dict[str, Any]:
    """The claims, by the documents alone. PyJWTError."""
    discovery = json.loads((hosted / ".well-known/openid-configuration").read_bytes())
    place = discovery["jwks_uri"].removeprefix(discovery["issuer"] + "/")
    keys = jwt.PyJWKSet.from_dict(json.loads((hosted / place).read_bytes()))
    found = keys[jwt.get_unverified_header(shown)["kid"]]
    options = {"require": ["iss", "sub", "aud", "iat", "nbf", "exp", "jti"]}
    return dict(
        jwt.decode(
            shown,
            found,
            algorithms=discovery["id_token_signing_alg_values_supported"],
            audience=origin,
            issuer=discovery["issuer"],
            options=options,  # type: ignore[arg-type]
            **more,
        )
    )


@dataclass
class World:
    """A vault that issues, and a server that verifies."""

    there: There
    server: Verifying
    hosted: Path

    @property
    def safe(self) -> Any:
        return self.there.domain.service.door.parts.opened.safe

    async def grant(self, agent: str = "fixer", session: str = "s1", **changes: Any) -> str:
        servers = {"a": {"url": f"https://{HOST}:{self.there.port}/mcp", "allow": ["*"]}}
        vault = self.there.vault
        told = types_pb2.LeaseTicket.FromString(vault.ticket(session=session).payload)
        told.agent = agent
        own = vault.domain.identity(Role.SESSIOND, "sessiond").load()
        ticket = sign(own.key, own.chain, told.SerializeToString())
        policy = json.dumps({"mcp": servers}).encode()
        return await vault.give(ticket, policy=policy, **changes)

    def export(self) -> None:
        state = self.there.domain.files.state
        carpal_vault("issuer", "export", self.hosted, "--state-dir", state)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    authority, hosted = Authority(tmp_path), tmp_path / "hosted"
    server = Verifying(hosted, Server(""))
    async with trust(tmp_path / "state") as domain, AsyncExitStack() as stack:
        port = await stack.enter_async_context(served(authority, server))
        server.origin = f"https://{HOST}:{port}"
        domain.service._guard = Guard(
            rule=Widened([port]),
            resolver=Names({HOST: [["127.0.0.1"]]}),
            authorities=authority.bundle.read_text(),
        )
        identity = domain.identity(Role.VAULT, "vault")
        address = await stack.enter_async_context(
            serve_mcp("127.0.0.1:0", identity, domain.service)
        )
        there = There(Vault(domain), server.inner, port, address, stack)
        carpal_vault("issuer", "init", ISSUER, "--state-dir", domain.files.state)
        it = World(there, server, hosted)
        it.export()
        policy = json.dumps({"mcp_server_url": f"{server.origin}/mcp"}).encode()
        made = pb.CreateCredentialRequest(credential_id="c1", kind="agent_identity", policy=policy)
        info = await create(await domain.vault(), made)
        assert await create(await domain.vault(), made) == info
        yield it


async def test_a_server_knows_by_published_keys_alone_which_agent_asks(world: World) -> None:
    reply = await world.there.call(await world.grant(), "c1")
    assert reply.json()["result"]["content"] == [{"type": "text", "text": "5"}]
    told = world.server.claims[-1]
    assert (told["sub"], told["workspace"], told["agent"], told["session"]) == (
        "workspace:default:agent:fixer", "default", "fixer", "s1",
    )  # fmt: skip
    assert (told["aud"], told["iss"]) == (world.server.origin, ISSUER)
    assert told["exp"] - told["nbf"] == LIFE
    assert world.server.problems == []


async def test_each_use_has_a_token_of_its_own_that_the_audit_knows_by_its_id(
    world: World,
) -> None:
    grant = await world.grant()
    for call in ("c1", "c2"):
        assert "result" in (await world.there.call(grant, call)).json()
    ids = list(dict.fromkeys(each["jti"] for each in world.server.claims))
    assert len(ids) == 2
    assert world.there.domain.service.door.parts.audit.flush()
    folder = world.there.domain.files.audit
    told = [each for each in lines(folder) if each.get("jti") in ids]
    assert [each["jti"] for each in told] == ids
    assert {each["kid"] for each in told} == {world.server.kids[0]}
    written_down = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for shown in world.server.shown:
        assert shown.encode() not in written_down
        assert shown.rpartition(".")[2].encode() not in written_down


async def test_a_server_that_repeats_the_token_gives_it_to_nobody(world: World) -> None:
    grant = await world.grant()
    params = {"name": "leaks", "arguments": {}}
    asked = world.there.request(grant, "tools/call", params, **{"carpal/callId": "c1"})
    reply = await (await world.there.http()).post(**asked)
    assert world.server.shown[-1] not in reply.text
    assert "REDACTED" in reply.text


async def test_no_caller_chooses_the_agent_or_the_session(world: World) -> None:
    """Whatever a brain says of itself beside its ticket, the token has what sessiond signed."""
    grant = await world.grant("fixer", "s1")
    asked = world.there.request(
        grant, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}},
        **{"carpal/callId": "c1", "agent": "admin", "session": "s9", "workspace": "other"},
    )  # fmt: skip
    asked["headers"] |= {"agent": "admin", "x-session": "s9", "authorization": f"Bearer {grant}"}
    assert "result" in (await (await world.there.http()).post(**asked)).json()
    told = world.server.claims[-1]
    assert (told["agent"], told["session"], told["workspace"]) == ("fixer", "s1", "default")


async def test_a_session_that_no_operator_named_an_agent_for_has_none_in_its_token(
    world: World,
) -> None:
    assert "result" in (await world.there.call(await world.grant(""), "c1")).json()
    told = world.server.claims[-1]
    assert "agent" not in told
    assert told["sub"] == "workspace:default"


async def test_keys_are_rotated_in_the_middle_of_a_session_without_a_gap(world: World) -> None:
    grant = await world.grant()
    state = world.there.domain.files.state
    assert "result" in (await world.there.call(grant, "c1")).json()
    with pytest.raises(CarpalError, match="less than 24 hours"):
        carpal_vault("issuer", "rotate", "--state-dir", state)
    before = world.server.shown[-1]
    later = issuer.load(world.safe).published + PUBLISHED
    await world.there.domain.service._do(lambda: issuer.turn(world.safe, later))
    # The server still has the documents of before: they name the key that signs now.
    assert "result" in (await world.there.call(grant, "c2")).json()
    assert world.server.problems == []
    assert len(set(world.server.kids)) == 2
    world.export()
    assert verified(world.hosted, before, world.server.origin)["jti"]
    keys = issuer.load(world.safe)
    assert len(documents(keys, later + 1)["jwks.json"]["keys"]) == 3
    assert len(documents(keys, later + KNOWN)["jwks.json"]["keys"]) == 2


async def test_a_key_that_somebody_has_is_known_no_more_at_once(world: World) -> None:
    grant = await world.grant()
    assert "result" in (await world.there.call(grant, "c1")).json()
    state = world.there.domain.files.state
    carpal_vault("issuer", "rotate", "--at-once", "--state-dir", state)
    world.export()
    with pytest.raises(KeyError):
        verified(world.hosted, world.server.shown[-1], world.server.origin)
    assert "result" in (await world.there.call(grant, "c2")).json()


async def test_trying_the_credential_proves_the_workspace_and_no_agent(world: World) -> None:
    operator = await world.there.domain.vault()
    ask = pb.ValidateCredentialRequest(credential_id="c1")
    assert (await operator.ValidateCredential(ask, timeout=LIMIT)).verdict == "valid"
    told = world.server.claims[-1]
    assert (told["sub"], "agent" in told, "session" in told) == ("workspace:default", False, False)


async def test_whoever_changes_its_policy_in_the_database_gets_no_token(world: World) -> None:
    database = world.safe.database

    def tampered() -> None:
        with database.transaction():
            database.execute(
                "UPDATE credentials SET policy = "
                "CAST(replace(CAST(policy AS TEXT), '[]', '[\"10.0.0.0/8\"]') AS BLOB)"
            )

    await world.there.domain.service._do(tampered)
    told = (await world.there.call(await world.grant(), "c1")).json()["error"]["data"]
    assert told["reason"] == "CREDENTIAL_UNAVAILABLE"
    assert world.server.claims == []


async def test_an_archived_identity_is_shown_to_nobody(world: World) -> None:
    grant = await world.grant()
    operator = await world.there.domain.vault()
    await operator.ArchiveCredential(pb.ArchiveCredentialRequest(credential_id="c1"), timeout=LIMIT)
    told = (await world.there.call(grant, "c1")).json()["error"]["data"]
    assert told["reason"] == "CREDENTIAL_UNAVAILABLE"
    assert world.server.claims == []


def test_a_token_is_for_one_server_and_its_time_alone(tmp_path: Path) -> None:
    keys = read(written(_keys()))
    now = 1_800_000_000
    for name, document in documents(keys, now).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
    shown = token(keys, Subject("default", "a:b", "s1"), HERE, now).text.decode()

    def at(moment: float, origin: str = "https://mcp.a.test:8443", text: str = shown) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("jwt.api_jwt.datetime", _clock(moment))
            try:
                return str(verified(tmp_path, text, origin)["sub"])
            except jwt.PyJWTError as error:
                return type(error).__name__

    assert at(now) == "workspace:default:agent:a:b"
    assert at(now, "https://mcp.b.test") == "InvalidAudienceError"
    assert at(now, "https://mcp.a.test") == "InvalidAudienceError"
    # A server's clock may be a minute behind ours, and four minutes ahead.
    assert at(now - SKEW) == at(now + LIFE - SKEW - 1) == at(now)
    assert at(now - SKEW - 5) == "ImmatureSignatureError"
    assert at(now + LIFE - SKEW) == "ExpiredSignatureError"
    head, said_, mark = shown.split(".")
    assert at(now, text=f"{head}.{said_}.{mark[:-8]}AAAAAAAA") == "InvalidSignatureError"


def test_an_issuer_has_one_url_for_ever(tmp_path: Path) -> None:
    state = tmp_path / "state"
    carpal_vault("init", "--state-dir", state)
    with pytest.raises(CarpalError, match="is no issuer") as caught:
        carpal_vault("issuer", "export", tmp_path / "out", "--state-dir", state)
    assert caught.value.reason is Reason.CONFIG_INVALID
    for wrong in ("http://a.com", "https://a.com/?x", "https://a.com//", "a.com"):
        with pytest.raises(CarpalError):
            carpal_vault("issuer", "init", wrong, "--state-dir", state)
    first = carpal_vault("issuer", "init", "https://a.com/", "--state-dir", state)
    assert carpal_vault("issuer", "init", "https://a.com", "--state-dir", state) == first
    with pytest.raises(CarpalError, match=r"the vault's issuer is https://a\.com"):
        carpal_vault("issuer", "init", "https://b.com", "--state-dir", state)
    with pytest.raises(CarpalError, match="was never published"):
        carpal_vault("issuer", "rotate", "--state-dir", state)


def test_the_documents_are_for_everybody_to_read_and_have_no_private_key(tmp_path: Path) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    carpal_vault("init", "--state-dir", state)
    carpal_vault("issuer", "init", ISSUER, "--state-dir", state)
    carpal_vault("issuer", "export", out, "--state-dir", state)
    for path in (out / "jwks.json", out / ".well-known" / "openid-configuration"):
        assert path.stat().st_mode & 0o777 == 0o644
        assert path.parent.stat().st_mode & 0o055 == 0o055
    for each in json.loads((out / "jwks.json").read_bytes())["keys"]:
        assert set(each) == {"kty", "crv", "x", "y", "alg", "use", "kid"}


def _keys() -> Any:
    _new = issuer._new
    return Keys(ISSUER, key(_new()), key(_new()))


def _clock(moment: float) -> Any:
    class At(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.fromtimestamp(moment, tz)

    return At
