"""Engines over one database, and the authorization server that they refresh at."""

import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.tls_ca import Authority
from tests.vault.audit.desk import lines, opened
from tests.vault.guard.upstream import Names, Widened
from tests.vault.oauth.kept import KEY, Kept
from tests.vault.oauth.server import AS_HOST, Login, login_server
from tests.vault.safes import safe_in
from vault.audit.audit import Audit
from vault.guard.transport import Guard
from vault.oauth.engine import Engine
from vault.oauth.ports import Authentication, Client, Key, Tokens
from vault.secret import Secret


@dataclass
class Desk:
    """One vault's engine."""

    engine: Engine
    kept: Kept
    folder: Path
    moved: list[float]
    rule: Widened
    guard: Guard
    executor: ThreadPoolExecutor
    audit: Audit

    def set_clock(self, seconds: float) -> None:
        """Ahead of what it says now."""
        self.moved[0] += seconds

    def audited(self) -> list[dict[str, object]]:
        """What the audit has of refreshing."""
        assert self.audit.flush()
        found = lines(self.folder / "audit")
        return [each for each in found if str(each.get("action", "")).startswith("oauth.")]


@asynccontextmanager
async def desk(folder: Path, port: int, bundle: str, audit: str = "audit") -> AsyncIterator[Desk]:
    """Over the database of this folder; the audit is this process's alone."""
    async with AsyncExitStack() as stack:
        log = stack.enter_context(opened(folder / audit))
        safe = stack.enter_context(safe_in(folder / "state", check=False))
        executor = stack.enter_context(ThreadPoolExecutor(1))
        rule = Widened([port])
        guard = await stack.enter_async_context(
            Guard(
                rule=rule,
                resolver=Names({AS_HOST: [["127.0.0.1"]]}),
                authorities=bundle,
            )
        )
        kept = Kept(safe)
        moved = [0.0]
        engine = Engine(safe, executor, kept, guard, log, clock=lambda: time.time() + moved[0])
        stack.push_async_callback(engine.aclose)
        yield Desk(engine, kept, folder, moved, rule, guard, executor, log)


@dataclass
class World:
    """A server, and a vault with a credential of it."""

    folder: Path
    login: Login
    port: int
    authority: Authority
    bundle: str
    desk: Desk

    @property
    def engine(self) -> Engine:
        return self.desk.engine

    def client(
        self,
        client_id: str = "carpal",
        authentication: Authentication = Authentication.NONE,
        **more: str,
    ) -> Client:
        endpoint = f"https://{AS_HOST}:{self.port}/token"
        return Client(endpoint, client_id, authentication, **more)  # type: ignore[arg-type]

    def enrol(
        self,
        left: float | None = -1.0,
        *,
        key: Key = KEY,
        client: Client | None = None,
        secret: str | None = None,
        lifetime: float | None = 3600.0,
    ) -> str:
        """A credential whose token has so many seconds left; the access token."""
        client = client or self.client()
        if client.client_id not in self.login.clients:
            self.login.client(client.client_id, client.authentication, secret)
        access = self.login.access_token()
        tokens = Tokens(
            Secret(access),
            Secret(self.login.refresh_token(client.client_id)),
            None if left is None else time.time() + left,
            lifetime,
        )
        self.desk.kept.add(key, client, tokens, Secret(secret) if secret else None)
        return access


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    authority = Authority(folder)
    bundle = authority.bundle.read_text()
    async with (
        login_server(authority) as (login, port),
        desk(folder, port, bundle) as made,
    ):
        yield World(folder, login, port, authority, bundle, made)
