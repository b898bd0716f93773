"""The listener for brains, over what is behind the door: shut while that is.

Below `/model/` it passes calls of models on; all else is the MCP proxy's.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from carpal.revocations import Revocations
from carpal.tls import IdentityFiles
from vault.credentials.uses import Uses
from vault.door import Door
from vault.grants.grants import Grants
from vault.guard.transport import Guard
from vault.http.exchange import Exchange
from vault.http.server import serve_https
from vault.mcp.calls import Calls
from vault.mcp.journal import Journal
from vault.mcp.ledger import Ledger
from vault.mcp.pins import Pins
from vault.mcp.proxy import Proxy
from vault.model_key import aliases
from vault.model_key.aliases import Alias
from vault.model_key.proxy import ModelProxy
from vault.model_key.said import ROOT


class Behind(Protocol):
    """What of the vault's service the listener needs."""

    door: Door
    grants: Grants
    revocations: Revocations

    @property
    def guard(self) -> Guard: ...

    def uses(self) -> Uses:
        """Credentials as requests use them."""
        ...

    async def aclose(self) -> None:
        """End all grants, and hang up on all servers."""
        ...


@asynccontextmanager
async def serve_mcp(listen: str, identity: IdentityFiles, service: Behind) -> AsyncIterator[str]:
    """Serve brains until the block ends; gives `host:port` as bound.

    A request is VAULT_SEALED until the vault is open. Raises as `serve_https`.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(service.aclose)
        made: list[Proxy] = []
        making = asyncio.Lock()

        models = _models(service)

        async def handle(exchange: Exchange) -> None:
            if exchange.path.startswith(ROOT):
                await models(exchange)
                return
            _ = service.door.parts
            async with making:
                if not made:
                    made.append(await stack.enter_async_context(_proxy(service)))
            await made[0](exchange)

        async with serve_https(
            listen, identity, "mcp", handle, revocations=service.revocations
        ) as address:
            yield address


def _models(service: Behind) -> ModelProxy:
    async def alias(name: str) -> Alias:
        parts = service.door.parts
        safe = parts.opened.safe
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(parts.executor, lambda: aliases.load(safe, name))

    return ModelProxy(alias, lambda: service.door.parts.audit, lambda: service.guard)


@asynccontextmanager
async def _proxy(service: Behind) -> AsyncIterator[Proxy]:
    parts = service.door.parts
    loop = asyncio.get_running_loop()
    database = parts.opened.safe.database
    ledger = await loop.run_in_executor(parts.executor, lambda: Ledger(database, parts.executor))
    calls = Calls(
        guard=service.guard,
        credentials=service.uses(),
        journal=Journal(ledger),
        pins=Pins(ledger),
        audit=parts.audit,
    )
    try:
        yield Proxy(service.grants, calls)
    finally:
        await calls.close()
        await ledger.close()
