"""A world in which every secret that a vault can hold is held, and used, and has a mark in it."""

import json
import secrets
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from carpal import children
from carpal.v1 import vault_pb2 as pb
from tests.interaction.canary_servers import MarkedLogin, Repeats
from tests.interaction.play import SECONDS
from tests.pace import SCALE
from tests.tls_ca import Authority
from tests.vault.guard.upstream import HOST as MODEL_HOST
from tests.vault.mcp.world import HOST, served
from tests.vault.model_key.test_sessions import Front, tls_before
from tests.vault.oauth.server import AS_HOST, login_server
from tests.world import World, _own_address

SCRIPT = Path(__file__).with_name("canaries.yaml")
CLIENT = "carpal"
BRAIN = 'provider = "claude"\n[providers.claude]\nkind = "anthropic"\nvault = "c"\n'


@dataclass
class Canaries:
    """All of it."""

    it: World
    mark: str
    """What all secrets have in them but those that the vault signs."""
    login: MarkedLogin
    plain: Repeats
    itself: Repeats
    front: Front | None = None
    servers: dict[str, str] = field(default_factory=dict)
    """Where MCP servers are, by name."""

    @property
    def agent(self) -> dict[str, object]:
        """What an agent says that may use all of them, and nobody is asked."""
        return {
            "mcp_servers": [{"name": name, "url": url} for name, url in self.servers.items()],
            "vault_ids": ["default"],
            "permissions": {"default": "always_allow"},
        }

    def secret(self, name: str) -> str:
        """A secret with the mark."""
        return f"{name}-{self.mark}-{secrets.token_hex(4)}"

    async def keep(self, folder: Path) -> None:
        """An operator puts a credential of each kind into the vault `default`."""
        refresh = {
            "client_id": self.login.client(CLIENT, "client_secret_post", self.secret("client")),
            "token_endpoint": f"{self.login.issuer}/token",
            "token_endpoint_auth": "client_secret_post",
        }
        ended = {"expires_at": time.time() - 60, "refresh": refresh}
        client_secret = self.login.clients[CLIENT].client_secret
        assert client_secret
        tokens = {
            "access_token": self.login.access_token(),
            "refresh_token": self.login.refresh_token(CLIENT),
            "client_secret": client_secret,
        }
        variable = {
            "secret_name": "API_KEY",
            "networking": {"type": "limited", "allowed_hosts": ["a.test"]},
        }
        token = (folder / "plain").read_text()
        for kind, policy, held in (
            ("static_bearer", {"mcp_server_url": self.servers["plain"]}, {"token": token}),
            ("mcp_oauth", {"mcp_server_url": self.servers["login"], **ended}, tokens),
            ("agent_identity", {"mcp_server_url": self.servers["itself"]}, {}),
            ("environment_variable", variable, {"secret_value": self.secret("variable")}),
        ):
            request = pb.CreateCredentialRequest(
                credential_id=kind.replace("_", "-"), kind=kind, policy=json.dumps(policy).encode(),
                secrets={name: value.encode() for name, value in held.items()},
            )  # fmt: skip
            async with self.it.vault() as stub:
                await stub.CreateCredential(request, timeout=SECONDS)


@asynccontextmanager
async def canaries(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Canaries]:
    """All of it, served: a vault, sessiond, two brains without a key, a daemon, and the others."""
    state, held, config = (folder / name for name in ("state", "held", "brain.toml"))
    held.mkdir()
    config.write_text(BRAIN)
    patch.delenv("ANTHROPIC_API_KEY", raising=False)
    authority = Authority(held)
    mark = f'CaNary+/"&{secrets.token_hex(8)}'
    plain = f"plain-{mark}-{secrets.token_hex(4)}"
    (held / "plain").write_text(plain)
    it = World(state, 2.0 * SCALE, environ={"CARPAL_STOP_WAIT": "0"})
    login = MarkedLogin()
    login.mark = mark
    there = Canaries(it, mark, login, Repeats(plain.__eq__), Repeats(bool))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(it.end)
        ports = []
        for name, server in (
            ("plain", there.plain),
            ("login", Repeats(login.takes)),
            ("itself", there.itself),
        ):
            ports.append(await stack.enter_async_context(served(authority, server, HOST)))
            there.servers[name] = f"https://{HOST}:{ports[-1]}/mcp"
        _, port = await stack.enter_async_context(login_server(authority, login, AS_HOST))
        where = ("--state-dir", str(state))
        await it.run("vault", "init", *where, "--brain", "b1", "--brain", "b2")
        practice = ("practice", "serve", "--listen", "127.0.0.1:0", "--script", str(SCRIPT))
        url = (await it.start("practice", *practice)).facts["url"]
        host, _, models = url.removeprefix("http://").rpartition(":")
        there.front = await stack.enter_async_context(tls_before(authority, host, int(models)))
        ports += [port, there.front.port]
        (held / "model").write_text(there.secret("model"))
        at = ("--url", f"https://{MODEL_HOST}:{there.front.port}", "--key", str(held / "model"))
        await it.run("vault", "model", "add", "c", *where, *at)
        await it.run("vault", "issuer", "init", "https://agents.example.com", *where)
        run = [sys.executable, "-m", "tests.vault.widened"]
        run += [",".join(map(str, ports)), str(authority.bundle)]
        with patch.context() as patched:
            patched.setattr(children, "interpreter", lambda: run)
            await it.start(
                "vault", "vault", "run", *where,
                "--listen", _own_address(), "--mcp-listen", _own_address(),
            )  # fmt: skip
        await there.keep(held)
        await it.sessiond()
        facts = {name: each.facts for name, each in it.running.items()}
        for name in ("b1", "b2"):
            await it.start(
                name, "brain", "run", *where, "--name", name, "--listen", _own_address(),
                "--enroll-listen", _own_address(), "--sessiond", facts["sessiond"]["address"],
                "--vault", facts["vault"]["address"], "--vault-mcp", facts["vault"]["mcp"],
                "--config", str(config), "--lease-term", str(it.term),
            )  # fmt: skip
        await it.daemon()
        yield there
