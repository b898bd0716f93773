"""The proxy between real brains and real MCP servers: all TLS, all certificates, all sockets.

Who may use what, and the credentials, are in memory here: they have rooms and tests of their own.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role
from carpal.revocations import Revocations
from carpal.status import Reason
from carpal.tls import IdentityFiles
from tests.pki import Pki
from tests.tls_ca import Authority
from tests.vault.guard.upstream import Names, Widened
from vault.audit.facts import checked
from vault.database import Database
from vault.guard.addresses import Network
from vault.guard.headers import Headers, bearer
from vault.guard.transport import Guard
from vault.http.server import serve_https
from vault.mcp.calls import Calls
from vault.mcp.journal import Journal
from vault.mcp.ledger import Ledger
from vault.mcp.pins import Pins
from vault.mcp.policy import ServerPolicy, server_policy
from vault.mcp.proxy import Proxy
from vault.mcp.slots import Slots
from vault.mcp.wire import MODERN, VERSION
from vault.secret import Secret

HOST = "mcp.a.test"
CANARY = "tok-CANARY-3f9a77c1e5d2"
LIMIT = 20.0
"""Seconds for whatever a test waits for."""


@dataclass
class AGrant:
    """A grant."""

    id: str
    session: str
    caller: str
    servers: dict[str, ServerPolicy]
    audience: str = "mcp"
    workspace: str = "default"
    agent: str = ""
    user: str = ""
    credentials: tuple[str, ...] = ()
    vaults: tuple[str, ...] = ()
    revoked: asyncio.Event = field(default_factory=asyncio.Event)


class SomeGrants:
    """Those there are, by token."""

    def __init__(self) -> None:
        self.all: dict[str, AGrant] = {}

    async def check(self, token: str, caller: Identity, audience: str) -> AGrant:
        grant = self.all.get(token)
        good = grant is not None and (grant.caller, grant.audience) == (caller.uri, audience)
        if grant is None or not good or grant.revoked.is_set():
            raise refuse(Reason.TOKEN_REFUSED, "the grant was refused")
        return grant


@dataclass
class AUse:
    """A credential in use, and what was said of it."""

    secret: Secret
    generation: str
    facts: dict[str, Any]
    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    reflections: int = 0
    next: "SomeCredentials | None" = None
    private: tuple[Network, ...] = ()

    @property
    def headers(self) -> Headers:
        return [("Authorization", bearer(self.secret))]

    @property
    def secrets(self) -> list[Secret]:
        return [self.secret]

    def outcome(self, status: str, **facts: str | int) -> None:
        self.said.append((status, facts))

    def reflected(self) -> None:
        self.reflections += 1

    async def refused(self) -> bool:
        assert self.next is not None
        return self.next.renew(self.generation)


class SomeCredentials:
    """One, which may be replaced."""

    def __init__(self) -> None:
        self.token = CANARY
        self.generation = 1
        self.uses: list[AUse] = []
        self.problem: CarpalError | None = None
        self.newer: str | None = None

    def renew(self, generation: str) -> bool:
        if self.newer is None:
            return generation != str(self.generation)
        self.token, self.newer = self.newer, None
        self.generation += 1
        return True

    @asynccontextmanager
    async def use(
        self, grant: object, policy: ServerPolicy, /, **facts: str | int
    ) -> AsyncIterator[AUse]:
        if self.problem is not None:
            raise self.problem
        use = AUse(Secret(self.token), str(self.generation), facts, next=self)
        self.uses.append(use)
        yield use

    @property
    def last(self) -> AUse:
        """The newest use."""
        return self.uses[-1]


@dataclass
class SomeAudit:
    """What was said to it."""

    refused: list[str] = field(default_factory=list)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def denied(self, action: str, reason: str, *, actor: str, **facts: str | int) -> None:
        checked({"action": action, "reason": reason, "actor": actor, **facts})
        self.refused.append(reason)

    def event(self, action: str, **facts: str | int) -> None:
        self.seen.append((action, checked({"action": action, **facts})))


@dataclass
class World:
    """All of it."""

    folder: Path
    pki: Pki
    authority: Authority
    address: str
    grants: SomeGrants
    credentials: SomeCredentials
    audit: "SomeAudit"
    rule: Widened
    calls: Calls
    ledger: Ledger
    brains: dict[str, IdentityFiles] = field(default_factory=dict)
    _clients: list[httpx2.AsyncClient] = field(default_factory=list)

    def grant(
        self, port: int, session: str = "s1", brain: str = "brain-1", **policy: Any
    ) -> "Brain":
        """A brain with a grant of a session, for a server called `a` at that port."""
        self.rule.ports.add(port)
        if brain not in self.brains:
            self.brains[brain] = self.pki.issue(Role.BRAIN, brain)
        files = self.brains[brain]
        value = {"url": f"https://{HOST}:{port}/mcp", "allow": ["*"], **policy}
        number = len(self.grants.all) + 1
        token = f"avs_mcp_token-{number}"
        grant = AGrant(
            f"g{number}", session, files.identity().uri, {"a": server_policy("a", value)}
        )
        self.grants.all[token] = grant
        return Brain(self, grant, token, self.client(files))

    def client(self, files: IdentityFiles) -> httpx2.AsyncClient:
        """A client that shows this certificate."""
        context = ssl.create_default_context(cadata=self.pki.ca_pem.decode())
        context.load_cert_chain(files.certificate, files.key)
        context.check_hostname = False  # it dials an address; the CA is this test's alone
        client = httpx2.AsyncClient(verify=context, timeout=LIMIT, trust_env=False)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Hang up."""
        for client in self._clients:
            await client.aclose()


@dataclass
class Brain:
    """One, with a grant."""

    world: World
    grant: AGrant
    token: str
    http: httpx2.AsyncClient
    _ids: int = 0

    @property
    def url(self) -> str:
        """Of the server `a`, behind the proxy."""
        return f"https://{self.world.address}/mcp/a"

    def headers(self, **more: str) -> dict[str, str]:
        """Of every request."""
        return {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }

    def body(
        self, method: str, params: Mapping[str, Any] | None = None, **meta: Any
    ) -> dict[str, Any]:
        """A request of 2026-07-28."""
        self._ids += 1
        said = {**(params or {}), "_meta": {VERSION: MODERN, **meta}}
        return {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": said}

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, **meta: Any
    ) -> dict[str, Any]:
        """The reply to one request."""
        reply = await self.http.post(
            self.url, headers=self.headers(), json=self.body(method, params, **meta)
        )
        return dict(reply.json())

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, call: str = "", **meta: Any
    ) -> dict[str, Any]:
        """The reply to a tool call, by a new id unless one is given."""
        meta = {"carpal/callId": call or f"call-{self.grant.id}-{self._ids}", **meta}
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}}, **meta)

    async def refused(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Why a call is not, or not well, answered."""
        reply = await self.call(name, arguments)
        return str(reply["error"]["data"]["reason"])

    @asynccontextmanager
    async def client(self, mode: str = "auto", **more: Any) -> AsyncIterator[Client]:
        """The official client, by the proxy."""
        self.http.headers["authorization"] = f"Bearer {self.token}"
        transport = streamable_http_client(self.url, http_client=self.http)
        async with Client(transport, mode=mode, **more) as client:
            yield client


@asynccontextmanager
async def world(folder: Path, slots: Slots | None = None) -> AsyncIterator[World]:
    """A vault with nothing but the proxy in it."""
    pki, authority = Pki(folder / "pki"), Authority(folder)
    rule, grants, credentials = Widened([]), SomeGrants(), SomeCredentials()
    audit = SomeAudit()
    guard = Guard(
        rule=rule,
        resolver=Names({HOST: [["127.0.0.1"]]}),
        authorities=authority.bundle.read_text(),
    )
    async with AsyncExitStack() as stack:
        database = stack.enter_context(closing(Database(folder / "vault.db")))
        ledger = Ledger(database, stack.enter_context(ThreadPoolExecutor(1)))
        await stack.enter_async_context(guard)
        calls = Calls(
            guard=guard,
            credentials=credentials,
            journal=Journal(ledger),
            pins=Pins(ledger),
            audit=audit,
            slots=slots,
        )
        stack.push_async_callback(ledger.close)
        stack.push_async_callback(calls.close)
        address = await stack.enter_async_context(
            serve_https(
                "127.0.0.1:0",
                pki.issue(Role.VAULT, "vault"),
                "mcp",
                Proxy(grants, calls),
                revocations=Revocations(),
            )
        )
        made = World(
            folder, pki, authority, address, grants, credentials, audit, rule, calls, ledger
        )
        try:
            yield made
        finally:
            await made.close()


class _Server(uvicorn.Server):
    """One beside others in a process whose signals are none of its business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(
    authority: Authority, app: Any, name: str = HOST, port: int = 0
) -> AsyncIterator[int]:
    """An ASGI application over TLS, as somebody else's server; gives its port."""
    certificate, key = authority.issue(name)
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_config=None,
        access_log=False,
        lifespan="on",
        http="h11",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(LIMIT):
        while not server.started:
            await asyncio.wait({running}, timeout=0.01)
            if running.done():
                running.result()
    try:
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await running
