"""Somebody else's server: real TLS on loopback, that answers as the test says, byte for byte.

The guard dials no loopback. `Widened` is the rule of tests: the production rule, and this machine
at the ports of the test's own servers. It lives here, so nothing that is shipped can be told to.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.tls_ca import Authority
from vault.guard.addresses import Network, Why
from vault.guard.network import MachineRule
from vault.guard.transport import Guard

HOST = "api.a.test"
UNREAD = b"/unread"
"""What is sent there is not read beyond its head."""


class Widened(MachineRule):
    """The rule, except for some ports of 127.0.0.1."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.ports = set(ports)

    def refusal(self, text: str, port: int, private: Iterable[Network] = ()) -> Why | None:
        if text == "127.0.0.1" and port in self.ports:
            return None
        return super().refusal(text, port, private)


@dataclass
class Names:
    """A resolver that knows what it is told, one answer after another; the last one stays."""

    answers: dict[str, list[list[str]]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        known = self.answers.get(host)
        if not known:
            raise OSError("no such name")
        return known.pop(0) if len(known) > 1 else known[0]


@dataclass
class Asked:
    """One request as it came."""

    head: bytes
    body: bytes
    connection: int
    """The how manieth connection it came by, from 1."""


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Upstream:
    """A server that is there."""

    port: int
    requests: list[Asked] = field(default_factory=list)
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a connection ended on the client's side."""


def reply(
    body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json"
) -> bytes:
    """A whole reply of a known length."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def says(raw: bytes) -> Answer:
    """The same bytes to everybody."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return answer


@asynccontextmanager
async def upstream(
    authority: Authority, answer: Answer, name: str = HOST
) -> AsyncIterator[Upstream]:
    """A server with a certificate of this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(name))
    there = Upstream(0)
    open_ones: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there.connections += 1
        number = there.connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = b"" if UNREAD in head else await _body(head, reader)
                asked = Asked(head, body, number)
                there.requests.append(asked)
                await answer(asked, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            there.gone.set()
        finally:
            writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        open_ones.add(task)
        task.add_done_callback(open_ones.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
    there.port = server.sockets[0].getsockname()[1]
    try:
        yield there
    finally:
        server.close()
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)


@asynccontextmanager
async def guarded(
    folder: Path, *answers: Answer, names: Names | None = None
) -> AsyncIterator[tuple[Guard, list[Upstream]]]:
    """A guard, and for each answer a server called HOST that it may dial."""
    authority = Authority(folder)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(upstream(authority, a)) for a in answers]
        guard = Guard(
            rule=Widened(server.port for server in servers),
            resolver=names or Names({HOST: [["127.0.0.1"]]}),
            authorities=authority.bundle.read_text(),
        )
        yield await stack.enter_async_context(guard), servers


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    headers = dict(
        line.lower().split(b": ", 1) for line in head.strip().split(b"\r\n")[1:] if b": " in line
    )
    if b"content-length" in headers:
        return await reader.readexactly(int(headers[b"content-length"]))
    body = b""
    while headers.get(b"transfer-encoding") == b"chunked":
        size = int(await reader.readuntil(b"\r\n"), 16)
        body += await reader.readexactly(size)
        await reader.readexactly(2)
        if not size:
            break
    return body
