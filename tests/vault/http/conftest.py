"""A real HTTPS server of the vault's, and callers with real certificates."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from carpal.identity import Role, server_name
from carpal.revocations import Revocations
from carpal.tls import IdentityFiles
from tests.pki import Pki
from vault.http.exchange import Exchange
from vault.http.server import serve_https

LIMIT = 20.0
"""Seconds for whatever a test waits for."""


@dataclass
class Served:
    """The server, and what it was asked."""

    pki: Pki
    files: IdentityFiles
    revocations: Revocations
    address: str = ""
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Caller, path and body of each request that the handler saw."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    handler: Callable[[Exchange], Awaitable[None]] | None = None
    callers: "list[Caller]" = field(default_factory=list)

    async def handle(self, exchange: Exchange) -> None:
        """Answer with the body, or as a test says."""
        if self.handler is not None:
            await self.handler(exchange)
            return
        body = await exchange.body(1024 * 1024)
        self.asked.append((exchange.caller.uri, exchange.path, body))
        await exchange.answer(200, b"<" + body + b">")

    def context(self, files: IdentityFiles | None) -> ssl.SSLContext:
        """A caller's TLS."""
        context = ssl.create_default_context(cadata=self.pki.ca_pem.decode())
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context

    async def dial(self, files: IdentityFiles | None) -> "Caller":
        """Connect, as whoever `files` say."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(
            host,
            int(port),
            ssl=self.context(files),
            server_hostname=server_name(Role.VAULT, self.pki.trust_domain),
        )
        self.callers.append(Caller(reader, writer))
        return self.callers[-1]


@dataclass
class Caller:
    """One connection, written by hand."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of one answer of known length."""
        async with asyncio.timeout(LIMIT):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            if b"connection: close" in head.lower():
                body = await self.reader.read()
            else:
                body = await self.reader.readexactly(length)
            return int(head.split()[1]), body

    async def rest(self) -> bytes:
        """All that comes until the server ends the connection."""
        async with asyncio.timeout(LIMIT):
            try:
                return await self.reader.read()
            except (ConnectionError, ssl.SSLError):
                return b""

    async def close(self) -> None:
        """Hang up."""
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that serves brains."""
    pki = Pki(tmp_path)
    files = pki.issue(Role.VAULT, "vault")
    served = Served(pki, files, Revocations())
    async with serve_https(
        "127.0.0.1:0", files, "mcp", served.handle, revocations=served.revocations
    ) as served.address:
        try:
            yield served
        finally:
            for caller in served.callers:
                await caller.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as one:
        yield one


@pytest.fixture
def brain(served: Served) -> IdentityFiles:
    return served.pki.issue(Role.BRAIN, "brain-1")
