"""A vault in a process of its own, with a credential and a grant, for the bench of the vault.

It is the vault's own service and listener for brains, with its audit, its store and its journal,
but that the guard may dial the bench's servers on this machine. It says how to reach it, and serves
until its standard input ends.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from carpal.identity import Role
from tests.trust import trust
from tests.vault.credentials.test_rpc import bearer, create
from tests.vault.grants.test_grants import Vault
from tests.vault.guard.upstream import Names, Widened
from tests.vault.mcp.world import CANARY, HOST
from vault.guard.transport import Guard
from vault.mcp_listener import serve_mcp


async def _main(folder: Path, ports: list[int]) -> None:
    async with trust(folder / "state") as domain, AsyncExitStack() as stack:
        domain.service._guard = Guard(
            rule=Widened(ports),
            resolver=Names({HOST: [["127.0.0.1"]]}),
            authorities=(folder / "test-CA.pem").read_text(),
        )
        vault, servers, ids = Vault(domain), {}, []
        operator = await domain.vault()
        for port in ports:
            url, name = f"https://{HOST}:{port}/mcp", f"s{port}"
            policy = json.dumps({"mcp_server_url": url}).encode()
            told = bearer(policy=policy, secrets={"token": CANARY.encode()}, credential_id=name)
            await create(operator, told)
            servers[name] = {"url": url, "allow": ["*"], "concurrency": 64}
            ids.append(name)
        given = json.dumps({"mcp": servers}).encode()
        token = await vault.give(vault.ticket(), policy=given, credential_ids=ids)
        own = domain.identity(Role.VAULT, "vault")
        address = await stack.enter_async_context(serve_mcp("127.0.0.1:0", own, domain.service))
        brain = str(vault.files["brain-1"].directory)
        print(json.dumps({"address": address, "token": token, "brain": brain}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_main(Path(sys.argv[1]), [int(each) for each in sys.argv[2:]]))
