"""A forwarder in a folder, hosts of the test's own behind it, and a client that sends bytes."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hands.forwarder.exchange import Way
from hands.forwarder.rules import parse
from hands.forwarder.server import Forwarder
from tests.hands.place import PATIENCE

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Host:
    """A server that keeps what each connection sent."""

    def __init__(self, answer: bytes, more: Answer | None) -> None:
        self.port = 0
        self.heads: list[bytes] = []
        self._answer = answer
        self._more = more

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a head, answer, and end."""
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._answer)
            if self._more:
                await self._more(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other end had enough
        finally:
            writer.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi\n"


@asynccontextmanager
async def host(
    answer: bytes = OK, more: Answer | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Host]:
    """A host on loopback, which answers every request alike."""
    made = Host(answer, more)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


def self_signed(address: str) -> bytes:
    """A key and a certificate of an address, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a host of a test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + made.public_bytes(pem)


async def nowhere(_host: str, _port: int) -> Sequence[str]:
    """Every name is this machine's loopback."""
    return ["127.0.0.1"]


async def everything(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other end closes.

    What is unread there at its close makes a reset here, after all that came.
    """
    said = bytearray()
    with suppress(ConnectionResetError):
        while piece := await reader.read(65536):
            said += piece
    return bytes(said)


class Client:
    """Speaks to a forwarder as the relay does."""

    def __init__(self, folder: Path, forwarder: Forwarder) -> None:
        self.folder = folder
        self.forwarder = forwarder

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection."""
        return await asyncio.open_unix_connection(self.folder / "egress")

    async def send(self, data: bytes, *, end: bool = False) -> bytes:
        """All that comes back; with `end` nothing more is sent."""
        async with asyncio.timeout(PATIENCE):
            reader, writer = await self.open()
            writer.write(data)
            if end:
                writer.write_eof()
            said = await everything(reader)
            writer.close()
            return said

    async def get(self, url: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
        """What a request gives."""
        authority = url.split("/")[2]
        lines = [f"{method} {url} HTTP/1.1", f"Host: {authority}", *headers, "", ""]
        return await self.send("\r\n".join(lines).encode() + body)


@asynccontextmanager
async def forwarding(folder: Path, *rules: object, way: Way | None = None) -> AsyncIterator[Client]:
    """A forwarder with these rules."""
    forwarder = Forwarder.open(folder, "h", parse(list(rules)), way or Way(resolve=nowhere))
    try:
        yield Client(folder, forwarder)
    finally:
        async with asyncio.timeout(PATIENCE):
            await forwarder.close()
