"""A stand-in for HashiCorp Vault's store of version 2, over real TLS, that can misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.vault.guard.upstream import HOST, Answer, Asked, Upstream, guarded, reply
from vault.guard.transport import Guard

TOKEN = "hvs.CANARY-manager-token-77"
DELETED: dict[str, Any] = {}


@dataclass
class Manager:
    """Its entries: by path the versions, the first is 1."""

    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    mount: str = "secret"
    namespace: str | None = None
    instead: Answer | None = None
    """What answers in its stead."""
    gate: asyncio.Event | None = None
    """Until it is set nothing is answered."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[str] = field(default_factory=list)
    """What was asked for, with the query."""

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        line, *rest = asked.head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (each.split(": ", 1) for each in rest if each)}
        method, target, _ = line.split(" ")
        assert (method, asked.body) == ("GET", b"")
        self.seen.append(target)
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.instead is not None:
            await self.instead(asked, writer)
            return
        known = headers["x-vault-token"] == TOKEN
        if known and headers.get("x-vault-namespace") == self.namespace:
            status, said = self._entry(target)
        else:
            status, said = "403 Forbidden", {"errors": ["permission denied"]}
        writer.write(reply(json.dumps(said).encode(), status=status))
        await writer.drain()

    def _entry(self, target: str) -> tuple[str, dict[str, Any]]:
        url = urlsplit(target)
        versions = self.entries.get(url.path.removeprefix(f"/v1/{self.mount}/data/"), [])
        number = int(parse_qs(url.query).get("version", [str(len(versions))])[0])
        if not 0 < number <= len(versions):
            return "404 Not Found", {"errors": []}
        data = versions[number - 1]
        about = {"version": number, "deletion_time": "", "destroyed": False}
        if data is DELETED:
            about["deletion_time"] = "2026-11-30T10:00:00Z"
            return "404 Not Found", {"data": {"data": None, "metadata": about}}
        return "200 OK", {"data": {"data": data, "metadata": about}, "lease_duration": 0}


@asynccontextmanager
async def managed(folder: Path, manager: Manager) -> AsyncIterator[tuple[Guard, Upstream]]:
    """The stand-in, and a guard that may dial it."""
    async with guarded(folder, manager) as (guard, [server]):
        yield guard, server


def settings(folder: Path, port: int, **more: Any) -> dict[str, Any]:
    """Of a source that asks it."""
    token = folder / "manager.token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    return {"address": f"https://{HOST}:{port}", "token_file": str(token), **more}
